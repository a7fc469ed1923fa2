//! kvindex and its peers, measured side by side on the same work.

mod cells;
mod judge;
mod measure;
mod record;
mod subject;
mod workload;

use record::Report;
use subject::{Chain, Copies, Dynamo, Kvindex, Locals, Positional, Sets, Smg, Subject};
use workload::{Fleet, Names, Sharing};

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

fn run<S: Subject>(claims: u64) {
    let report = Report {
        workload: "mixed".into(),
        claims,
        subject: S::NAME,
    };
    let fleet = Fleet::new(1, claims, Sharing::Mixed, Names::Common);
    cells::fleet::<S>(&fleet, &report);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let claims = args[2].parse().unwrap();
    match &*args[1] {
        "kvindex" => run::<Kvindex<Sets>>(claims),
        "locals" => run::<Kvindex<Locals>>(claims),
        "copies" => run::<Kvindex<Copies>>(claims),
        "smg" => run::<Smg>(claims),
        "chain" => run::<Chain>(claims),
        "positional" => run::<Positional>(claims),
        "dynamo" => run::<Dynamo>(claims),
        _ => panic!(),
    }
}
