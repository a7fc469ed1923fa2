//! A msgpack writer that shares nothing with the reader.

/// A value as it goes on the wire.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    Nil,
    Bool(bool),
    /// Shortest encoding.
    Integer(i128),
    Float(f64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<Wire>),
    Map(Vec<(Wire, Wire)>),
    /// Bytes that are a value already.
    Raw(Vec<u8>),
}

pub(crate) const NIL: Wire = Wire::Nil;

impl From<i128> for Wire {
    fn from(value: i128) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Wire {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<&[u8]> for Wire {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.into())
    }
}

impl<T: Into<Wire>> From<Vec<T>> for Wire {
    fn from(value: Vec<T>) -> Self {
        Self::Array(value.into_iter().map(Into::into).collect())
    }
}

/// An array of values of any kind.
macro_rules! array {
    ($($item:expr),* $(,)?) => {
        $crate::wire::Wire::Array(vec![$($crate::wire::Wire::from($item)),*])
    };
}

/// A map of string keys.
macro_rules! map {
    ($($key:literal: $value:expr),* $(,)?) => {
        $crate::wire::Wire::Map(vec![
            $(($crate::wire::Wire::from($key), $crate::wire::Wire::from($value))),*
        ])
    };
}

pub(crate) use {array, map};

/// A batch as vLLM sends it, of rank 0.
pub(crate) fn batch(events: Vec<Wire>) -> Wire {
    array![Wire::Float(1.5), events, 0]
}

/// The integers from `first` on.
pub(crate) fn range(first: i128, count: i128) -> Wire {
    (first..first + count).collect::<Vec<_>>().into()
}

impl Wire {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.push(0xc0),
            Self::Bool(value) => out.push(0xc2 + u8::from(*value)),
            Self::Integer(value) => integer(out, *value),
            Self::Float(value) => {
                out.push(0xcb);
                out.extend(value.to_be_bytes());
            }
            Self::Text(text) => {
                let tags = [0xd9, 0xda, 0xdb];
                length(out, text.len(), Some((0xa0, 31)), tags);
                out.extend(text);
            }
            Self::Bytes(bytes) => {
                length(out, bytes.len(), None, [0xc4, 0xc5, 0xc6]);
                out.extend(bytes);
            }
            Self::Array(items) => {
                // No 8-bit length for containers: its tag stands for 16 bits.
                length(out, items.len(), Some((0x90, 15)), [0, 0xdc, 0xdd]);
                for item in items {
                    item.write(out);
                }
            }
            Self::Map(items) => {
                length(out, items.len(), Some((0x80, 15)), [0, 0xde, 0xdf]);
                for (key, value) in items {
                    key.write(out);
                    value.write(out);
                }
            }
            Self::Raw(bytes) => out.extend(bytes),
        }
    }
}

fn length(out: &mut Vec<u8>, length: usize, fixed: Option<(u8, usize)>, tags: [u8; 3]) {
    if let Some((tag, most)) = fixed
        && length <= most
    {
        out.push(tag + length as u8);
    } else if tags[0] != 0 && length <= 0xff {
        out.extend([tags[0], length as u8]);
    } else if length <= 0xffff {
        out.push(tags[1]);
        out.extend((length as u16).to_be_bytes());
    } else {
        out.push(tags[2]);
        out.extend((length as u32).to_be_bytes());
    }
}

fn integer(out: &mut Vec<u8>, value: i128) {
    let (tag, width) = match value {
        -32..=0x7f => return out.push(last_byte(value)),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..-32 => (0xd0, 1),
        -0x8000..-0x80 => (0xd1, 2),
        -0x8000_0000..-0x8000 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(tag);
    out.extend(&value.to_be_bytes()[16 - width..]);
}

fn last_byte(value: i128) -> u8 {
    value.to_be_bytes()[15]
}

/// Every encoding that msgpack has for the value.
pub(crate) fn encodings(value: i128) -> Vec<Wire> {
    let mut found = Vec::new();
    if (-32..=0x7f).contains(&value) {
        found.push(Wire::Raw(vec![last_byte(value)]));
    }
    for (power, (unsigned, signed)) in [(0xcc, 0xd0), (0xcd, 0xd1), (0xce, 0xd2), (0xcf, 0xd3)]
        .into_iter()
        .enumerate()
    {
        let width = 1 << power;
        let mut add = |tag| {
            let mut bytes = vec![tag];
            bytes.extend(&value.to_be_bytes()[16 - width..]);
            found.push(Wire::Raw(bytes));
        };
        if (0..1 << (8 * width)).contains(&value) {
            add(unsigned);
        }
        if (-(1 << (8 * width - 1))..1 << (8 * width - 1)).contains(&value) {
            add(signed);
        }
    }
    found
}
