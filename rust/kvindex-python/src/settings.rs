//! Which settings are in range? Block sizes, ranks, tiers and weights.

use kvindex::event::Tier;
use kvindex::{MAX_BLOCK_SIZE, Weights};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PySequence, PyString};

use crate::error::config_error;
use crate::integers::type_name;

/// Tokens a block, 1 to 2^20.
pub(crate) fn block_size(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    within(object, 1, MAX_BLOCK_SIZE, |range| {
        format!("block_size {range}")
    })
}

/// Blocks that may wait for their parent.
pub(crate) fn orphan_blocks(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    within(object, 0, u32::MAX, |range| {
        format!("orphan_blocks {range}")
    })
}

/// Tokens of one chunk on a tier.
pub(crate) fn chunk_tokens(object: &Bound<'_, PyAny>, tier: Tier) -> PyResult<u32> {
    let name = tier.name();
    within(object, 1, u32::MAX, |range| {
        format!("chunk_tokens for {name} {range}")
    })
}

/// A number within limits, else `ConfigError`.
fn within(
    object: &Bound<'_, PyAny>,
    least: u32,
    most: u32,
    message: impl Fn(String) -> String,
) -> PyResult<u32> {
    match object.extract::<u32>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => Err(error),
        _ => Err(config_error(message(format!(
            "must be {least} to {most}, not {object}"
        )))),
    }
}

/// A data-parallel rank.
pub(crate) fn rank(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    object.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(object.py()) {
            return error;
        }
        let most = u32::MAX;
        PyOverflowError::new_err(format!("a rank must be 0 to {most}, not {object}"))
    })
}

/// A tier by its name.
pub(crate) fn tier(name: &Bound<'_, PyAny>) -> PyResult<Tier> {
    let name = name.cast::<PyString>()?.to_str()?;
    Tier::from_name(name).ok_or_else(|| {
        config_error(format!(
            "a tier is one of {}, not {name:?}",
            Tier::ALL.map(Tier::name).join(", ")
        ))
    })
}

/// Some of the tiers, from a sequence of names.
pub(crate) struct Tiers(pub(crate) [bool; 4]);

impl FromPyObject<'_, '_> for Tiers {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let names = object.cast::<PySequence>();
        let names = names.ok().filter(|_| !object.is_instance_of::<PyString>());
        let Some(names) = names else {
            return Err(PyTypeError::new_err(format!(
                "expected a sequence of tier names, not {}",
                type_name(&object)
            )));
        };
        let mut tiers = [false; 4];
        for name in names.try_iter()? {
            tiers[tier(&name?)? as usize] = true;
        }
        Ok(Self(tiers))
    }
}

/// The keys and values of a mapping.
pub(crate) fn items<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let items = object.cast::<PyMapping>()?.items()?;
    items.iter().map(|item| item.extract()).collect()
}

/// What a block counts for, by where it is found.
#[derive(Clone, Copy)]
pub(crate) struct WeightTable(Weights);

/// Some of the weights.
pub(crate) struct GivenWeights([Option<f64>; 5]);

impl WeightTable {
    /// The tiers in their order, then what only pools hold.
    const NAMES: [&str; 5] = ["device", "host", "disk", "external", "shared"];

    /// The weights in the order of [`Self::NAMES`].
    pub(crate) const fn weights(&self) -> Weights {
        self.0
    }

    /// These weights, those that are given overridden.
    pub(crate) fn with(mut self, given: Option<&GivenWeights>) -> Self {
        for (weight, given) in self
            .0
            .iter_mut()
            .zip(given.into_iter().flat_map(|given| given.0))
        {
            *weight = given.unwrap_or(*weight);
        }
        self
    }

    /// Name to weight.
    pub(crate) fn dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        for (name, weight) in Self::NAMES.into_iter().zip(self.0) {
            dict.set_item(name, weight)?;
        }
        Ok(dict)
    }
}

impl Default for WeightTable {
    fn default() -> Self {
        Self([1.0, 0.75, 0.25, 0.25, 0.5])
    }
}

impl FromPyObject<'_, '_> for GivenWeights {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut given = [None; 5];
        for (name, weight) in items(&object)? {
            let name = name.cast::<PyString>()?.to_str()?;
            let Some(place) = WeightTable::NAMES.iter().position(|known| *known == name) else {
                return Err(config_error(format!(
                    "a weight is one of {}, not {name:?}",
                    WeightTable::NAMES.join(", ")
                )));
            };
            let value = weight.extract::<f64>()?;
            if !value.is_finite() || value < 0.0 {
                return Err(config_error(format!(
                    "the weight of {name} must be finite and 0 or more, not {value}"
                )));
            }
            given[place] = Some(value);
        }
        Ok(Self(given))
    }
}
