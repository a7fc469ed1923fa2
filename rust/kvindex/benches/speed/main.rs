//! How fast is the index itself, without Python? `cargo bench --bench speed`, or
//! with a part of a name behind `--` only what has it in its name.
//!
//! All input is made from fixed seeds. Whole figures beside a peer, from Python,
//! are in the folder `bench` of the repository.

mod apply;
mod decode;
mod find;
mod msgpack;
mod workload;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(50)
        .configure_from_args();
    decode::bench(&mut criterion);
    apply::bench(&mut criterion);
    find::bench(&mut criterion);
    criterion.final_summary();
}
