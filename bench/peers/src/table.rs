//! Figures as a table: a line a cell, a column a subject, and the ratio.

#[cfg(test)]
mod tests;

use crate::plan::{MACHINE, SUBJECTS, is_peer};
use crate::record::Record;

/// The table of one workload.
pub(crate) fn table(workload: &str, claims: u64, records: &[Record]) -> String {
    let subjects: Vec<&str> = SUBJECTS
        .into_iter()
        .chain([MACHINE])
        .filter(|name| records.iter().any(|record| record.subject == *name))
        .collect();
    let mut lines = vec![header(&subjects)];
    for (cell, x) in cells(records) {
        lines.push(line(cell, x, &subjects, records));
    }
    let mut text = format!(
        "\n{workload}, {} claims\n{}",
        grouped(claims),
        aligned(&lines)
    );
    if SUBJECTS.iter().any(|subject| is_wrong(subject, records)) {
        text.push_str("! answered wrongly in this workload; not compared with\n");
    }
    for record in records {
        if let Some(note) = &record.note {
            text.extend([&record.subject, ": ", note, "\n"]);
        }
    }
    text
}

fn header(subjects: &[&str]) -> Vec<String> {
    let mut header = vec![String::new()];
    header.extend(subjects.iter().map(|&name| name.to_owned()));
    header.push("x better than the best peer".into());
    header
}

/// Every cell with figures, in the order in which they came.
fn cells(records: &[Record]) -> Vec<(&str, Option<u64>)> {
    let mut cells = Vec::new();
    for record in records.iter().filter(|record| record.note.is_none()) {
        let cell = (&*record.cell, record.x);
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    cells
}

fn line(cell: &str, x: Option<u64>, subjects: &[&str], records: &[Record]) -> Vec<String> {
    let of = |subject: &str| {
        let mut same = records.iter().filter(|record| record.note.is_none());
        same.find(|record| record.subject == subject && record.cell == cell && record.x == x)
    };
    let found: Vec<Option<&Record>> = subjects.iter().map(|&subject| of(subject)).collect();
    let mut line = vec![title(cell, x, found.iter().flatten().next().copied())];
    for record in &found {
        line.push(record.map_or("-".into(), |record| {
            let mark = if is_wrong(&record.subject, records) {
                " !"
            } else {
                ""
            };
            figure(record) + mark
        }));
    }
    let best: Vec<&Record> = found
        .iter()
        .flatten()
        .copied()
        .filter(|record| is_peer(&record.subject) && !is_wrong(&record.subject, records))
        .collect();
    line.push(of("kvindex").map_or(String::new(), |own| ratio(own, &best)));
    line
}

fn is_wrong(subject: &str, records: &[Record]) -> bool {
    let mut own = records.iter().filter(|record| record.subject == subject);
    own.any(|record| record.cell == "wrong" && record.value.is_some_and(|wrong| wrong > 0.0))
}

fn title(cell: &str, x: Option<u64>, first: Option<&Record>) -> String {
    let unit = first.map_or("", |record| &record.unit);
    let is_mean = first.is_some_and(|record| record.value.is_some());
    let unit = match unit {
        "blocks/s" => "M blocks/s",
        "bytes/s" => "M bytes/s",
        "ns" if is_mean => "ns",
        "ns" => "ns, p50 / p99 / p99.9",
        "wrong" if cell == "wrong" => "answers",
        "wrong" => "blocks",
        unit => unit,
    };
    let at = x.map_or(String::new(), |x| format!(" at {}", grouped(x)));
    format!("{}{at}, {unit}", cell.replace('_', " "))
}

fn figure(record: &Record) -> String {
    let short = |value: f64| match value {
        value if value < 100.0 => format!("{value:.1}"),
        value if value < 10_000.0 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.0}k", value / 1e3),
        value => format!("{:.1}M", value / 1e6),
    };
    match (record.value, record.p50, record.p99, record.p999) {
        (Some(value), ..) if record.unit.ends_with("/s") => format!("{:.2}", value / 1e6),
        (Some(value), ..) if record.cell == "wrong" => {
            format!("{value} of {}", record.of.unwrap_or(0))
        }
        (Some(value), ..) if record.unit == "wrong" => format!("{value}"),
        (Some(value), ..) => short(value),
        (_, Some(p50), Some(p99), Some(p999)) => {
            let whole = |value: f64| short(value).trim_end_matches(".0").to_owned();
            format!("{} / {} / {}", whole(p50), whole(p99), whole(p999))
        }
        _ => "-".into(),
    }
}

/// How many times better kvindex is than the best peer, for each number.
fn ratio(own: &Record, peers: &[&Record]) -> String {
    if own.unit == "wrong" || peers.is_empty() {
        return String::new();
    }
    let fields: [fn(&Record) -> Option<f64>; 3] = [
        |record| record.value,
        |record| record.p50,
        |record| record.p99,
    ];
    let ratios = fields.iter().filter_map(|field| {
        let own_value = field(own)?;
        let values = peers.iter().filter_map(|peer| field(peer));
        let ratio = if own.unit.ends_with("/s") {
            own_value / values.fold(f64::NAN, f64::max)
        } else {
            values.fold(f64::NAN, f64::min) / own_value
        };
        Some(format!("{ratio:.2}x"))
    });
    ratios.collect::<Vec<_>>().join(" / ")
}

/// A number with its thousands set apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns of equal width, the first one to the left.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let cell = if column == 0 {
                format!("{cell:width$}")
            } else {
                format!("  {cell:>width$}")
            };
            text.push_str(&cell);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
