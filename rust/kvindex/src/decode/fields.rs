//! One field at a time: its type, its range, and nil for absent.

use std::ops::Range;

use super::extra::{ExtraKey, Identifier};
use super::msgpack::{Broken, Reader, Value};
use super::{Fail, tokens};
use crate::event::{GroupKind, Name, Reason};

/// What an event calls its cache group's kind, and the length of its window.
pub(super) fn group_kind(kind: &str, window: Option<u64>) -> GroupKind {
    match (kind, window) {
        ("full_attention" | "mla_attention" | "sink_full_attention", _) => GroupKind::Full,
        ("sliding_window" | "sliding_window_mla", Some(tokens @ 1..)) => {
            GroupKind::Window(tokens.try_into().unwrap_or(u32::MAX))
        }
        ("mamba", _) => GroupKind::State,
        _ => GroupKind::Other,
    }
}

/// Whether a locality says that the copy lies with somebody else.
pub(super) fn is_remote(locality: &str) -> bool {
    locality.eq_ignore_ascii_case("REMOTE")
}

/// A string field.
pub(super) fn text<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, Fail> {
    if reader.nil() {
        return Ok(None);
    }
    match reader.value()? {
        Value::Text(bytes) => str::from_utf8(bytes).map(Some).map_err(|_| Fail::MALFORMED),
        _ => Err(Fail::MALFORMED),
    }
}

/// A string field in which the empty string counts as absent.
pub(super) fn label<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, Fail> {
    Ok(text(reader)?.filter(|text| !text.is_empty()))
}

/// An integer field that is not negative.
pub(super) fn unsigned(reader: &mut Reader<'_>) -> Result<Option<u64>, Fail> {
    if reader.nil() {
        return Ok(None);
    }
    match reader.value()? {
        Value::Unsigned(value) => Ok(Some(value)),
        _ => Err(Fail::MALFORMED),
    }
}

/// An integer field.
pub(super) fn signed(reader: &mut Reader<'_>) -> Result<Option<i64>, Fail> {
    if reader.nil() {
        return Ok(None);
    }
    integer(reader.value()?).map(Some).ok_or(Fail::MALFORMED)
}

/// The number of a cache group.
pub(super) fn group(reader: &mut Reader<'_>) -> Result<Option<u32>, Fail> {
    let group = unsigned(reader)?.map(u32::try_from);
    group.transpose().map_err(|_| Fail::MALFORMED)
}

/// The salt among the named options that SGLang's arrays may end with.
pub(super) fn salt_option<'a>(
    reader: &mut Reader<'a>,
    options: u32,
) -> Result<Option<&'a str>, Fail> {
    let mut salt = None;
    for _ in 0..options {
        if key(reader)? == Some(b"cache_salt") {
            salt = label(reader)?;
        } else {
            reader.skip()?;
        }
    }
    Ok(salt)
}

/// The items of an array; None for any other value.
#[inline]
pub(super) fn array(reader: &mut Reader<'_>) -> Result<Option<usize>, Broken> {
    if let Some(items) = reader.short_array() {
        return Ok(Some(items));
    }
    match reader.value()? {
        Value::Array(items) => Ok(Some(items as usize)),
        _ => Ok(None),
    }
}

/// A map's key; None where it is no string.
pub(super) fn key<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Fail> {
    if let Some(key) = reader.short_text() {
        return Ok(Some(key));
    }
    let start = reader.position();
    if let Value::Text(key) = reader.value()? {
        return Ok(Some(key));
    }
    reader.seek(start);
    reader.skip()?;
    Ok(None)
}

/// One engine hash, or nil.
pub(super) fn optional_name(reader: &mut Reader<'_>) -> Result<Option<Name>, Fail> {
    if reader.nil() {
        return Ok(None);
    }
    name(reader).map(Some)
}

#[inline]
fn name(reader: &mut Reader<'_>) -> Result<Name, Fail> {
    if let Some(value) = reader.long_integer() {
        return Ok(Name::from_integer(value));
    }
    match reader.value()? {
        Value::Unsigned(value) => Ok(Name::from_integer(value)),
        Value::Negative(value) => Ok(Name::from_integer(value.cast_unsigned())),
        Value::Bytes(bytes) => Ok(Name::from_bytes(bytes)),
        _ => Err(Fail::MALFORMED),
    }
}

/// A list of engine hashes, appended to `names`.
pub(super) fn names(
    reader: &mut Reader<'_>,
    names: &mut Vec<Name>,
) -> Result<Option<Range<usize>>, Fail> {
    if reader.nil() {
        return Ok(None);
    }
    let count = array(reader)?.ok_or(Fail::MALFORMED)?;
    let start = names.len();
    names.reserve(count);
    for _ in 0..count {
        names.push(name(reader)?);
    }
    Ok(Some(start..names.len()))
}

/// A list of tokens, appended to `all`; true where they come as pairs.
pub(super) fn tokens(
    reader: &mut Reader<'_>,
    all: &mut Vec<u32>,
) -> Result<(Range<usize>, bool), Fail> {
    let start = all.len();
    if reader.nil() {
        return Ok((start..start, false));
    }
    let count = array(reader)?.ok_or(Fail::MALFORMED)?;
    let pairs = tokens::read(reader, count, all)?;
    Ok((start..all.len(), pairs))
}

/// A list of local keys, appended to `all`.
pub(super) fn local_keys(reader: &mut Reader<'_>, all: &mut Vec<u64>) -> Result<Range<u32>, Fail> {
    let start = all.len() as u32;
    if reader.nil() {
        return Ok(start..start);
    }
    let count = array(reader)?.ok_or(Fail::MALFORMED)?;
    for _ in 0..count {
        match reader.value()? {
            Value::Unsigned(key) => all.push(key),
            _ => return Err(Fail::MALFORMED),
        }
    }
    let end = u32::try_from(all.len()).map_err(|_| Fail::MALFORMED)?;
    Ok(start..end)
}

/// The extra keys of one block, in place of what `keys` held.
pub(super) fn extra_keys<'a>(
    reader: &mut Reader<'a>,
    keys: &mut Vec<ExtraKey<'a>>,
) -> Result<(), Fail> {
    keys.clear();
    if reader.nil() {
        return Ok(());
    }
    let count = array(reader)?.ok_or(EXTRA_KEYS)?;
    for _ in 0..count {
        keys.push(extra_key(reader)?);
    }
    Ok(())
}

/// Extra keys that cannot be read.
pub(super) const EXTRA_KEYS: Fail = Fail::fault(Reason::ExtraKeys);

fn extra_key<'a>(reader: &mut Reader<'a>) -> Result<ExtraKey<'a>, Fail> {
    match reader.value()? {
        Value::Text(bytes) => Ok(ExtraKey::Text(utf8(bytes)?)),
        Value::Bytes(bytes) => Ok(ExtraKey::Bytes(bytes)),
        Value::Array(2) => {
            let identifier = match reader.value()? {
                Value::Text(bytes) => Identifier::Text(utf8(bytes)?),
                Value::Bytes(bytes) => Identifier::Bytes(bytes),
                _ => return Err(EXTRA_KEYS),
            };
            let offset = integer(reader.value()?).ok_or(EXTRA_KEYS)?;
            Ok(ExtraKey::Image { identifier, offset })
        }
        _ => Err(EXTRA_KEYS),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, Fail> {
    str::from_utf8(bytes).map_err(|_| EXTRA_KEYS)
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Unsigned(value) => value.try_into().ok(),
        Value::Negative(value) => Some(value),
        _ => None,
    }
}
