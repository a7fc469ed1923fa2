//! What is wrong with a source? What `kvindex.diagnosis` makes of its symptoms.

use kvindex::Symptoms;
use kvindex::event::{Reason, Tier};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::Error;
use crate::indexer::Indexer;
use crate::settings::Tiers;

#[pymethods]
impl Indexer {
    /// What looks wrong with the sources of events, and what to do about it.
    ///
    /// Findings are about what came since a worker or pool was registered or reset,
    /// whichever was last. Waits for a write in progress, without the interpreter.
    ///
    /// Args:
    ///     tiers: The tiers on which every worker should store. Those with a
    ///         `max_age` are expected of their worker anyway.
    ///
    /// Returns:
    ///     One finding for each holder and kind: see `kvindex.diagnosis.Finding` and
    ///     the table in docs/engines.md.
    ///
    /// Raises:
    ///     ConfigError: A tier is unknown.
    ///
    /// Examples:
    ///     >>> import kvindex
    ///     >>> index = kvindex.Indexer(block_size=4)
    ///     >>> stored = kvindex.BlockStored([1], range(4), medium="L2")
    ///     >>> report = index.apply([stored], worker="w0")
    ///     >>> finding, = index.diagnose()
    ///     >>> finding.worker, finding.kind, finding.count
    ///     ('w0', 'medium', 1)
    #[pyo3(signature = (*, tiers=None))]
    fn diagnose<'py>(
        &self,
        py: Python<'py>,
        tiers: Option<Tiers>,
    ) -> Result<Bound<'py, PyAny>, Error> {
        self.findings(py, tiers.map_or([false; 4], |tiers| tiers.0))
    }
}

impl Indexer {
    /// All findings, with tiers on which every worker should store.
    pub(crate) fn findings<'py>(
        &self,
        py: Python<'py>,
        expected: [bool; 4],
    ) -> Result<Bound<'py, PyAny>, Error> {
        let symptoms = py.detach(|| self.index.symptoms())?;
        let cases = symptoms.iter().map(|each| case(py, each, expected));
        let cases = PyList::new(py, cases.collect::<PyResult<Vec<_>>>()?)?;
        let config = self.index.config();
        Ok(py
            .import("kvindex.diagnosis")?
            .call_method1("of_index", (cases, config.block_size, config.group_rules))?)
    }

    /// How many findings there are of each kind; of one worker's rank, if given.
    pub(crate) fn kinds<'py>(
        &self,
        py: Python<'py>,
        worker: Option<(&str, u32)>,
    ) -> Result<Bound<'py, PyAny>, Error> {
        let findings = self.findings(py, [false; 4])?;
        Ok(py
            .import("kvindex.diagnosis")?
            .call_method1("kinds", (findings, worker))?)
    }
}

/// One holder's symptoms, as `kvindex.diagnosis.Case` has them.
fn case<'py>(
    py: Python<'py>,
    symptoms: &Symptoms,
    expected: [bool; 4],
) -> PyResult<Bound<'py, PyDict>> {
    let evidence = &symptoms.evidence;
    let case = PyDict::new(py);
    let whose = if symptoms.pool { "pool" } else { "worker" };
    case.set_item(whose, &*symptoms.name)?;
    case.set_item("dp_rank", symptoms.rank)?;
    let reasons = PyDict::new(py);
    for (reason, count) in Reason::ALL.into_iter().zip(evidence.reasons) {
        reasons.set_item(reason.name(), count)?;
    }
    case.set_item("reasons", reasons)?;
    let silent = |tier: &Tier| {
        let at = *tier as usize;
        let wanted = symptoms.aged[at] || (expected[at] && !symptoms.pool);
        wanted && evidence.stored[at] == 0
    };
    let silent = Tier::ALL.into_iter().filter(silent).map(Tier::name);
    case.set_item("silent_tiers", silent.collect::<Vec<_>>())?;
    case.set_item("stored", evidence.stored.iter().sum::<u64>())?;
    case.set_item("sizeless", evidence.sizeless)?;
    case.set_item("batches", evidence.batches)?;
    case.set_item("missed", evidence.missed)?;
    case.set_item("silence", symptoms.silence)?;
    case.set_item("waiting", symptoms.waiting)?;
    case.set_item("duplicates", symptoms.duplicates)?;
    case.set_item("compared", symptoms.compared)?;
    case.set_item("agreeing", symptoms.agreeing)?;
    case.set_item("medium", evidence.medium.as_deref())?;
    case.set_item("block_size", evidence.block_size)?;
    case.set_item("lora_id", evidence.lora_id)?;
    Ok(case)
}
