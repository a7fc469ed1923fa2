//! What can go wrong for a caller.

use std::fmt;

/// A setting is out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A batch that cannot be decoded, or that strict applying refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What was expected and what came.
    pub message: String,
    /// The byte at which decoding stopped.
    pub offset: Option<usize>,
    /// The event that is at fault.
    pub event: Option<usize>,
}

impl DecodeError {
    /// Bytes that are no batch.
    pub fn at(offset: usize, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            offset: Some(offset),
            event: None,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(offset) = self.offset {
            return write!(out, "{} at byte {offset}", self.message);
        }
        if let Some(event) = self.event {
            return write!(out, "event {event}: {}", self.message);
        }
        out.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

/// The process was forked while another thread was writing to the index: the
/// child's copy is half written and of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

impl fmt::Display for Forked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the process was forked while another thread wrote to this index")
    }
}

impl std::error::Error for Forked {}

/// A worker cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// A setting is out of range.
    Config(ConfigError),
    /// See [`Forked`].
    Forked(Forked),
}

impl From<Forked> for RegisterError {
    fn from(forked: Forked) -> Self {
        Self::Forked(forked)
    }
}

impl From<ConfigError> for RegisterError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
