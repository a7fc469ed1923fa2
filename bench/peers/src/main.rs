//! kvindex and its peers, measured side by side on the same work.
//!
//! Every subject does every workload in a process of its own: this program starts
//! itself again for each, collects the figures and prints one table.

mod arguments;
mod cells;
mod judge;
mod measure;
mod plan;
mod record;
mod round;
mod subject;
mod table;
mod workload;

use std::process::ExitCode;

use arguments::{Arguments, USAGE};

#[global_allocator]
static ALLOCATOR: measure::Counting = measure::Counting;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(fault) => {
            eprintln!("{fault}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if arguments.child {
        for workload in &arguments.workloads {
            for &claims in &arguments.claims(workload) {
                for subject in arguments.subjects(workload, claims) {
                    workload.run(subject, claims);
                }
            }
        }
        return ExitCode::SUCCESS;
    }
    match round::all(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}
