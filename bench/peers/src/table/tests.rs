use super::{grouped, table};
use crate::record::Record;

fn record(cell: &str, subject: &str, unit: &str, value: f64) -> Record {
    Record {
        cell: cell.into(),
        subject: subject.into(),
        unit: unit.into(),
        value: Some(value),
        ..Record::default()
    }
}

fn line(text: &str, start: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(start));
    line.expect("is there")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn ratios_are_above_one_where_kvindex_is_better() {
    let records = [
        record("store", "kvindex", "blocks/s", 6e6),
        record("store", "smg-radix-tree", "blocks/s", 2e6),
        record("store", "kv-index-chain", "blocks/s", 3e6),
        record("bytes_per_claim", "kvindex", "bytes", 9.0),
        record("bytes_per_claim", "smg-radix-tree", "bytes", 36.0),
    ];
    let text = table("mixed", 4_000_000, &records);
    assert!(text.contains("mixed, 4,000,000 claims"));
    assert_eq!(
        line(&text, "store"),
        "store, M blocks/s 6.00 2.00 3.00 2.00x"
    );
    let bytes = "bytes per claim, bytes 9.0 36.0 - 4.00x";
    assert_eq!(line(&text, "bytes"), bytes);
}

#[test]
fn who_answers_wrongly_is_marked_and_not_compared_with() {
    let wrong = |subject, value| Record {
        of: Some(10),
        ..record("wrong", subject, "wrong", value)
    };
    let records = [
        record("store", "kvindex", "blocks/s", 4e6),
        record("store", "dynamo-kv-router", "blocks/s", 8e6),
        record("store", "smg-radix-tree", "blocks/s", 2e6),
        wrong("kvindex", 0.0),
        wrong("dynamo-kv-router", 3.0),
        wrong("smg-radix-tree", 0.0),
    ];
    let text = table("holes", 1, &records);
    assert_eq!(
        line(&text, "store"),
        "store, M blocks/s 4.00 8.00 ! 2.00 2.00x"
    );
    let wrong = "wrong, answers 0 of 10 3 of 10 ! 0 of 10";
    assert_eq!(line(&text, "wrong"), wrong);
}

#[test]
fn distributions_show_three_numbers_and_two_ratios() {
    let samples = |subject: &str, p50, p99, p999| Record {
        cell: "match".into(),
        subject: subject.into(),
        unit: "ns".into(),
        p50: Some(p50),
        p99: Some(p99),
        p999: Some(p999),
        ..Record::default()
    };
    let records = [
        samples("kvindex", 200.0, 400.0, 12_345.0),
        samples("smg-radix-tree", 300.0, 500.0, 700.0),
    ];
    let text = table("mixed", 1, &records);
    let expected = "match, ns, p50 / p99 / p99.9 200 / 400 / 12k 300 / 500 / 700 1.50x / 1.25x";
    assert_eq!(line(&text, "match"), expected);
}

#[test]
fn thousands_are_set_apart() {
    assert_eq!(grouped(7), "7");
    assert_eq!(grouped(1_234), "1,234");
    assert_eq!(grouped(12_800_000), "12,800,000");
}
