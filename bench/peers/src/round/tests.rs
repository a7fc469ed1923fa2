use super::{merged, versions};
use crate::record::Record;

fn round(cell: &str, value: Option<f64>, histogram: &[(u32, u64)]) -> Record {
    Record {
        cell: cell.into(),
        subject: "kvindex".into(),
        value,
        of: Some(10),
        histogram: histogram.to_vec(),
        ..Record::default()
    }
}

#[test]
fn rounds_become_their_median_with_all_samples() {
    let records = merged(vec![
        round("store", Some(3.0), &[(8, 1), (16, 2)]),
        round("remove", None, &[]),
        round("store", Some(9.0), &[(16, 5)]),
        round("store", Some(4.0), &[(4, 1)]),
    ]);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].value, Some(4.0));
    assert_eq!(records[0].of, Some(30));
    assert_eq!(records[0].histogram, [(4, 1), (8, 1), (16, 7)]);
    assert_eq!(records[1].value, None);
}

#[test]
fn the_versions_of_all_that_is_measured_are_known() {
    let versions = versions();
    assert_eq!(versions.len(), 4);
    assert!(versions["kv-index"].contains(", "));
}
