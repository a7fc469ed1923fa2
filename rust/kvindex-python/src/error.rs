//! Which Python exception is it?

use kvindex::error::{ConfigError, DecodeError, Forked, RegisterError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::{PyErr, Python};

mod python {
    pyo3::import_exception!(kvindex.errors, ConfigError);
    pyo3::import_exception!(kvindex.errors, DecodeError);
}

/// Whatever a call can fail with; becomes the exception of its kind.
#[derive(Debug)]
pub(crate) enum Error {
    /// Raised by Python or by a conversion; passes unchanged.
    Python(PyErr),
    /// A setting is out of its range.
    Config(ConfigError),
    /// A batch cannot be decoded, or strict applying refuses it.
    Decode(DecodeError),
    /// The process was forked in the middle of a write.
    Forked(Forked),
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<Forked> for Error {
    fn from(error: Forked) -> Self {
        Self::Forked(error)
    }
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Config(error) => Self::Config(error),
            RegisterError::Forked(error) => Self::Forked(error),
        }
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Python(error) => error,
            Error::Config(error) => config_error(error.to_string()),
            Error::Decode(error) => {
                python::DecodeError::new_err((error.to_string(), error.offset, error.event))
            }
            Error::Forked(error) => PyRuntimeError::new_err(error.to_string()),
        }
    }
}

/// Whether an exception is a `DecodeError`.
pub(crate) fn is_decode_error(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<python::DecodeError>(py)
}

/// The exception for a setting that is out of its range.
pub(crate) fn config_error(message: String) -> PyErr {
    python::ConfigError::new_err(message)
}
