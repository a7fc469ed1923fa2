//! One figure: a line of JSON.

use serde::{Deserialize, Serialize};

use crate::judge::Verdict;
use crate::measure::Samples;

/// A figure of one subject in one cell of one workload, or a remark on why
/// there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) bench: String,
    pub(crate) workload: String,
    pub(crate) claims: u64,
    pub(crate) cell: String,
    pub(crate) subject: String,
    /// `ns`, `blocks/s`, `bytes` or `wrong`; nothing with a remark.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(crate) unit: String,
    /// Where a workload has several points: claims, blocks or holders.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) x: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p999: Option<f64>,
    /// Samples, or queries that were judged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) of: Option<u64>,
    /// Workers in an answer, on average.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) rows: Option<f64>,
    /// Up to how many nanoseconds took how many samples.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) histogram: Vec<(u32, u64)>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) note: Option<String>,
}

/// Where a child's figures come from, and where they go.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) workload: String,
    pub(crate) claims: u64,
    pub(crate) subject: &'static str,
}

impl Report {
    fn record(&self, cell: &str, unit: &str) -> Record {
        Record {
            bench: "peers".into(),
            workload: self.workload.clone(),
            claims: self.claims,
            cell: cell.into(),
            subject: self.subject.into(),
            unit: unit.into(),
            ..Record::default()
        }
    }

    /// One number.
    pub(crate) fn value(&self, cell: &str, unit: &str, x: Option<u64>, value: f64) {
        print(&Record {
            x,
            value: Some(value),
            ..self.record(cell, unit)
        });
    }

    /// A distribution of single calls.
    pub(crate) fn samples(&self, cell: &str, x: Option<u64>, mut samples: Samples, rows: f64) {
        samples.sort();
        let quantile = |share| Some(f64::from(samples.quantile(share)));
        print(&Record {
            x,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            of: Some(samples.len() as u64),
            rows: Some(rows),
            histogram: samples.histogram(),
            ..self.record(cell, "ns")
        });
    }

    /// Wrong answers, and by how many blocks they were at the most.
    pub(crate) fn verdict(&self, verdict: &Verdict) {
        let wrong = |cell, value| Record {
            value: Some(value),
            of: Some(verdict.of),
            ..self.record(cell, "wrong")
        };
        print(&wrong("wrong", verdict.wrong as f64));
        print(&wrong("wrong_too_many", f64::from(verdict.too_many)));
        print(&wrong("wrong_too_few", f64::from(verdict.too_few)));
    }

    /// Why there is no figure.
    pub(crate) fn note(&self, cell: &str, note: &str) {
        print(&Record {
            note: Some(note.into()),
            ..self.record(cell, "")
        });
    }
}

fn print(record: &Record) {
    let line = serde_json::to_string(record).expect("plain values");
    println!("{line}");
}
