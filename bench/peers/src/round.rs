//! Runs everybody in turns, each in a process of its own, and collects figures.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::arguments::Arguments;
use crate::plan::Workload;
use crate::record::Record;
use crate::table;

/// Measures whatever was asked for; writes the file and prints the table.
pub(crate) fn all(arguments: &Arguments) -> io::Result<()> {
    println!("{}", machine());
    let mut file = arguments.json.as_deref().map(create).transpose()?;
    if let Some(file) = &mut file {
        writeln!(file, "{}", about())?;
    }
    for workload in &arguments.workloads {
        for claims in arguments.claims(workload) {
            let mut records = one(arguments, workload, claims)?;
            if arguments.subjects.is_empty() {
                let left_out = workload.left_out(claims).into_iter();
                let note = |(subject, why)| note(workload.name, claims, subject, why);
                records.extend(left_out.map(note));
            }
            if let Some(file) = &mut file {
                for record in &records {
                    let line = serde_json::to_string(record).map_err(io::Error::other)?;
                    writeln!(file, "{line}")?;
                }
            }
            println!("{}", table::table(workload.name, claims, &records));
        }
    }
    Ok(())
}

/// A file to write figures to, and the folder that it lies in.
fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}

/// One workload of one size: all rounds, merged.
fn one(arguments: &Arguments, workload: &Workload, claims: u64) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for round in 0..arguments.rounds(workload, claims) {
        for subject in arguments.subjects(workload, claims) {
            let start = Instant::now();
            records.extend(child(workload.name, claims, subject)?);
            let seconds = start.elapsed().as_secs_f64();
            let name = workload.name;
            eprintln!(
                "{name}, {claims} claims, round {}, {subject}: {seconds:.1} s",
                round + 1
            );
        }
    }
    Ok(merged(records))
}

/// A remark on why there are no figures.
fn note(workload: &str, claims: u64, subject: &str, why: &str) -> Record {
    Record {
        bench: "peers".into(),
        workload: workload.into(),
        claims,
        cell: "store".into(),
        subject: subject.into(),
        note: Some(why.into()),
        ..Record::default()
    }
}

/// What one subject does in a process of its own. One that fails, for want of
/// memory for instance, leaves a remark.
fn child(workload: &str, claims: u64, subject: &str) -> io::Result<Vec<Record>> {
    let number = claims.to_string();
    let output = Command::new(std::env::current_exe()?)
        .args(["--child", "--workload", workload])
        .args(["--claims", &number, "--subjects", subject])
        .stderr(Stdio::inherit())
        .output()?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let records = lines.lines().map(serde_json::from_str);
    let mut records: Vec<Record> = records
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    if !output.status.success() {
        let why = format!("ended early: {}", output.status);
        records.push(note(workload, claims, subject, &why));
    }
    Ok(records)
}

/// One record for each figure: medians of the rounds, and all their samples.
fn merged(records: Vec<Record>) -> Vec<Record> {
    let mut places = HashMap::new();
    let mut groups: Vec<Vec<Record>> = Vec::new();
    for record in records {
        let (cell, subject) = (record.cell.clone(), record.subject.clone());
        let key = (cell, subject, record.x, record.note.clone());
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(record);
    }
    groups.into_iter().map(|group| median(&group)).collect()
}

fn median(rounds: &[Record]) -> Record {
    let middle = |field: fn(&Record) -> Option<f64>| {
        let mut values: Vec<f64> = rounds.iter().filter_map(field).collect();
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => None,
            count if count % 2 == 1 => Some(values[count / 2]),
            count => Some(f64::midpoint(values[count / 2 - 1], values[count / 2])),
        }
    };
    let mut buckets = std::collections::BTreeMap::new();
    for &(bound, count) in rounds.iter().flat_map(|record| &record.histogram) {
        *buckets.entry(bound).or_insert(0) += count;
    }
    // Samples add up; the same queries judged again do not.
    let of = match &*rounds[0].unit {
        "wrong" => rounds[0].of,
        _ => rounds.iter().map(|record| record.of).sum(),
    };
    Record {
        value: middle(|record| record.value),
        p50: middle(|record| record.p50),
        p99: middle(|record| record.p99),
        p999: middle(|record| record.p999),
        of,
        histogram: buckets.into_iter().collect(),
        ..rounds[0].clone()
    }
}

/// The file's first line: what was measured, on what.
fn about() -> serde_json::Value {
    json!({"bench": "peers", "about": {
        "machine": machine(),
        "subjects": versions(),
        "command": std::env::args().skip(1).fold("peers".to_owned(), |all, word| all + " " + &word),
    }})
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown processor");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {threads} threads")
}

/// The versions of what is measured, as the lock file has them.
fn versions() -> HashMap<String, String> {
    let measured = ["kvindex", "dynamo-kv-router", "smg-radix-tree", "kv-index"];
    let mut versions: HashMap<String, String> = HashMap::new();
    let packages = include_str!("../Cargo.lock").split("[[package]]");
    for package in packages {
        let field = |name| {
            let line = package
                .lines()
                .find_map(|line: &str| line.strip_prefix(name));
            line.map(|value| value.trim_matches(['=', ' ', '"']))
        };
        let (Some(name), Some(version)) = (field("name"), field("version")) else {
            continue;
        };
        if measured.contains(&name) {
            let known = versions.entry(name.into()).or_default();
            if !known.is_empty() {
                known.push_str(", ");
            }
            known.push_str(version);
        }
    }
    versions
}
