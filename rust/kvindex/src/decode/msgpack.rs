//! Msgpack values, read in place from a payload.
//!
//! The reader borrows strings from the payload, never recurses and never trusts
//! a declared length: a container's items take a byte each at least, so a count
//! above what is left is a truncation that shows before anything is allocated.
//!
//! [`Reader::value`] reads anything. The commonest encodings have a reader of
//! their own, which leaves everything else to it.

use crate::error::DecodeError;

/// Bytes that are no msgpack, or none that a batch may consist of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken {
    offset: usize,
    expected: &'static str,
    found: &'static str,
}

impl From<Broken> for DecodeError {
    fn from(broken: Broken) -> Self {
        let Broken {
            offset,
            expected,
            found,
        } = broken;
        Self::at(offset, format!("expected {expected}, found {found}"))
    }
}

impl Broken {
    pub(super) fn new(offset: usize, expected: &'static str, found: &'static str) -> Self {
        Self {
            offset,
            expected,
            found,
        }
    }
}

/// A scalar, or the head of a container whose items follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer of any encoding that is not negative.
    Unsigned(u64),
    /// A negative integer.
    Negative(i64),
    /// A float of either size.
    Float(f64),
    /// A string, not checked to be UTF-8.
    Text(&'a [u8]),
    /// A byte string.
    Bytes(&'a [u8]),
    /// A value of a type that only its sender knows.
    Extension,
    /// This many items follow.
    Array(u32),
    /// This many keys follow, each with its value.
    Map(u32),
}

impl Value<'_> {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Unsigned(_) | Self::Negative(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::Extension => "an extension",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
        }
    }
}

/// Hands out the values of a payload that is one value and nothing more, in
/// their order: the head of a container, then its items.
///
/// # Errors
///
/// Where the payload is no msgpack, ends too early or goes on behind the value,
/// with the offset of that place; and what `visit` returns, which ends the walk.
pub fn values<'a>(
    payload: &'a [u8],
    mut visit: impl FnMut(usize, Value<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(payload);
    // See `Reader::skip`.
    let mut left = 1_u64;
    while left > 0 {
        left -= 1;
        let offset = reader.position();
        let value = reader.value()?;
        match value {
            Value::Array(items) => left += u64::from(items),
            Value::Map(items) => left += 2 * u64::from(items),
            _ => {}
        }
        visit(offset, value)?;
    }
    Ok(reader.finish()?)
}

/// A position in a payload.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    payload: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self {
            payload,
            rest: payload,
        }
    }

    /// The offset of the next byte.
    pub(super) fn position(&self) -> usize {
        self.payload.len() - self.rest.len()
    }

    /// Goes to a position where a value starts.
    pub(super) fn seek(&mut self, position: usize) {
        self.rest = &self.payload[position..];
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Goes on, given the bytes that are left then.
    pub(super) fn advance(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    /// Succeeds at the end of the payload only.
    pub(super) fn finish(&self) -> Result<(), Broken> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Broken::new(
            self.position(),
            "the end of the payload",
            "more bytes",
        ))
    }

    /// Reads a scalar whole, of a container its head.
    pub(super) fn value(&mut self) -> Result<Value<'a>, Broken> {
        let before = self.rest;
        let value = self.parse();
        if let Some(Value::Array(items) | Value::Map(items)) = value
            && items as usize > self.rest.len()
        {
            return Err(self.broken(before));
        }
        value.ok_or_else(|| self.broken(before))
    }

    /// The error at a value that is none.
    #[cold]
    fn broken(&self, at: &[u8]) -> Broken {
        let offset = self.payload.len() - at.len();
        if at.first() == Some(&0xc1) {
            return Broken::new(offset, "a value", "the unused byte 0xc1");
        }
        Broken::new(offset, "a whole value", "the end of the payload")
    }

    /// Takes a nil where one follows.
    #[inline]
    pub(super) fn nil(&mut self) -> bool {
        let [0xc0, rest @ ..] = self.rest else {
            return false;
        };
        self.rest = rest;
        true
    }

    /// Takes a string of up to 31 bytes where one follows.
    #[inline]
    pub(super) fn short_text(&mut self) -> Option<&'a [u8]> {
        let [tag @ 0xa0..=0xbf, rest @ ..] = self.rest else {
            return None;
        };
        let text;
        (text, self.rest) = rest.split_at_checked(usize::from(tag & 0x1f))?;
        Some(text)
    }

    /// Takes an unsigned integer of 64 bits where one follows.
    #[inline]
    pub(super) fn long_integer(&mut self) -> Option<u64> {
        let ([0xcf, bytes @ ..], rest) = self.rest.split_first_chunk::<9>()? else {
            return None;
        };
        self.rest = rest;
        Some(u64::from_be_bytes(*bytes))
    }

    /// Takes the head of an array of up to 65535 items where one follows.
    #[inline]
    pub(super) fn short_array(&mut self) -> Option<usize> {
        let (items, rest) = match self.rest {
            [tag @ 0x90..=0x9f, rest @ ..] => (usize::from(tag & 0x0f), rest),
            [0xdc, high, low, rest @ ..] => (u16::from_be_bytes([*high, *low]).into(), rest),
            _ => return None,
        };
        if items > rest.len() {
            return None;
        }
        self.rest = rest;
        Some(items)
    }

    /// Passes over one value with everything inside it.
    pub(super) fn skip(&mut self) -> Result<(), Broken> {
        // Instead of a stack: how many values are still to come. Every head is
        // bounded by the bytes left, so the sum stays far from overflowing.
        let mut values = 1_u64;
        while values > 0 {
            values -= 1;
            if self.nil() {
                continue;
            }
            match self.value()? {
                Value::Array(items) => values += u64::from(items),
                Value::Map(items) => values += 2 * u64::from(items),
                _ => {}
            }
        }
        Ok(())
    }

    /// None where the payload ends too early, and for the unused byte.
    fn parse(&mut self) -> Option<Value<'a>> {
        let tag = self.take(1)?[0];
        Some(match tag {
            0x00..=0x7f => Value::Unsigned(tag.into()),
            0x80..=0x8f => Value::Map((tag & 0x0f).into()),
            0x90..=0x9f => Value::Array((tag & 0x0f).into()),
            0xa0..=0xbf => Value::Text(self.take((tag & 0x1f).into())?),
            0xc0 => Value::Nil,
            0xc1 => return None,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xc4 => Value::Bytes(self.counted::<1>()?),
            0xc5 => Value::Bytes(self.counted::<2>()?),
            0xc6 => Value::Bytes(self.counted::<4>()?),
            0xc7 => self.counted_extension::<1>()?,
            0xc8 => self.counted_extension::<2>()?,
            0xc9 => self.counted_extension::<4>()?,
            0xca => Value::Float(f32::from_bits(self.fixed::<4>()? as u32).into()),
            0xcb => Value::Float(f64::from_bits(self.fixed::<8>()?)),
            0xcc => Value::Unsigned(self.fixed::<1>()?),
            0xcd => Value::Unsigned(self.fixed::<2>()?),
            0xce => Value::Unsigned(self.fixed::<4>()?),
            0xcf => Value::Unsigned(self.fixed::<8>()?),
            0xd0 => self.signed::<1>()?,
            0xd1 => self.signed::<2>()?,
            0xd2 => self.signed::<4>()?,
            0xd3 => self.signed::<8>()?,
            0xd4..=0xd8 => self.extension(1 << (tag - 0xd4))?,
            0xd9 => Value::Text(self.counted::<1>()?),
            0xda => Value::Text(self.counted::<2>()?),
            0xdb => Value::Text(self.counted::<4>()?),
            0xdc => Value::Array(self.fixed::<2>()? as u32),
            0xdd => Value::Array(self.fixed::<4>()? as u32),
            0xde => Value::Map(self.fixed::<2>()? as u32),
            0xdf => Value::Map(self.fixed::<4>()? as u32),
            0xe0..=0xff => Value::Negative(tag.cast_signed().into()),
        })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken;
        (taken, self.rest) = self.rest.split_at_checked(length)?;
        Some(taken)
    }

    /// A big-endian integer of `N` bytes.
    fn fixed<const N: usize>(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        let bytes: &[u8; N];
        (bytes, self.rest) = self.rest.split_first_chunk()?;
        wide[8 - N..].copy_from_slice(bytes);
        Some(u64::from_be_bytes(wide))
    }

    fn signed<const N: usize>(&mut self) -> Option<Value<'a>> {
        let unused = 64 - 8 * N as u32;
        let value = (self.fixed::<N>()? << unused).cast_signed() >> unused;
        Some(u64::try_from(value).map_or(Value::Negative(value), Value::Unsigned))
    }

    /// A byte string behind its length of `N` bytes.
    fn counted<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let length = self.fixed::<N>()?;
        self.take(length as usize)
    }

    fn counted_extension<const N: usize>(&mut self) -> Option<Value<'a>> {
        let length = self.fixed::<N>()?;
        self.extension(length as usize)
    }

    /// A type byte and that many others.
    fn extension(&mut self, length: usize) -> Option<Value<'a>> {
        self.take(1)?;
        self.take(length)?;
        Some(Value::Extension)
    }
}
