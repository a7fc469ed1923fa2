//! The msgpack events of vLLM, SGLang and all that speak like them.
//!
//! ```text
//! batch    [timestamp, [event, ...], rank?, ...]
//! event    ["BlockStored", field, ...]              fields by position
//!          {"type": "BlockStored", name: field}     fields by name, any order
//! ```
//!
//! Versions differ in how many fields they send; what is missing or nil is
//! absent, what is unknown is skipped.

use std::ops::Range;

use super::extra::{ExtraKey, SaltRule, classify_block};
use super::layout::{Field, Kind};
use super::msgpack::{Broken, Reader, Value};
use super::{Fail, Mark, fields};
use crate::error::DecodeError;
use crate::event::{Batch, Event, Name, Remove, Store};

/// Reads one payload of the vLLM family.
///
/// # Errors
///
/// Where the payload is no msgpack or not of the shape of a batch, with the
/// offset of the value at fault. Faults inside an event are no errors.
pub fn decode(payload: &[u8]) -> Result<Batch, DecodeError> {
    let decoder = Decoder {
        reader: Reader::new(payload),
        batch: Batch::default(),
        keys: Vec::new(),
    };
    Ok(decoder.batch()?)
}

/// What was read of an event.
#[derive(Default)]
struct Fields<'a> {
    names: Option<Range<usize>>,
    tokens: Range<usize>,
    locals: Range<u32>,
    pairs: bool,
    parent: Option<Name>,
    block_size: Option<u64>,
    lora: Option<&'a str>,
    lora_id: Option<i64>,
    salt: Option<&'a str>,
    medium: Option<&'a str>,
    remote: bool,
    group: Option<u32>,
    kind: Option<&'a str>,
    window: Option<u64>,
    /// Where the extra keys are: they can be told apart only when the adapter's
    /// name and the parent are known.
    extra_keys: Option<usize>,
}

struct Decoder<'a> {
    reader: Reader<'a>,
    batch: Batch,
    /// The extra keys of the block at hand.
    keys: Vec<ExtraKey<'a>>,
}

impl<'a> Decoder<'a> {
    fn batch(mut self) -> Result<Batch, Broken> {
        let items = self.array("a batch [timestamp, events, rank]")?;
        if items < 2 {
            return Err(Broken::new(0, "at least 2 items in a batch", "fewer"));
        }
        self.reader.skip()?;
        let events = self.array("an array of events")?;
        // Events are larger than their bytes may be: no trust in a large count.
        self.batch.events.reserve(events.min(64) as usize);
        for _ in 0..events {
            self.event()?;
        }
        if items > 2 {
            self.rank()?;
        }
        for _ in 3..items {
            self.reader.skip()?;
        }
        self.reader.finish()?;
        Ok(self.batch)
    }

    fn array(&mut self, expected: &'static str) -> Result<u32, Broken> {
        let start = self.reader.position();
        match self.reader.value()? {
            Value::Array(items) => Ok(items),
            value => Err(Broken::new(start, expected, value.kind())),
        }
    }

    fn rank(&mut self) -> Result<(), Broken> {
        let start = self.reader.position();
        if let Value::Unsigned(rank) = self.reader.value()? {
            self.batch.rank = rank.try_into().ok();
            return Ok(());
        }
        self.reader.seek(start);
        self.reader.skip()
    }

    fn event(&mut self) -> Result<(), Broken> {
        let start = self.reader.position();
        let mark = Mark::of(&self.batch);
        let event = match self.try_event() {
            Ok(event) => event,
            Err(Fail::Broken(broken)) => return Err(broken),
            Err(Fail::Fault { reason, hashes }) => {
                mark.restore(&mut self.batch);
                self.reader.seek(start);
                self.reader.skip()?;
                Event::Fault { reason, hashes }
            }
        };
        self.batch.events.push(event);
        Ok(())
    }

    fn try_event(&mut self) -> Result<Event, Fail> {
        match self.reader.value()? {
            Value::Array(items) => self.positional(items as usize),
            Value::Map(items) => self.keyed(items),
            _ => Err(Fail::MALFORMED),
        }
    }

    fn positional(&mut self, items: usize) -> Result<Event, Fail> {
        let Some(behind) = items.checked_sub(1) else {
            return Err(Fail::MALFORMED);
        };
        let kind = self.tag()?;
        if behind < kind.required() {
            return Err(Fail::MALFORMED);
        }
        let mut fields = Fields::default();
        for at in 0..behind {
            let field = kind.positions().get(at).copied();
            self.field(field.unwrap_or(Field::Other), &mut fields)?;
        }
        let rule = if items >= 12 {
            SaltRule::EveryBlock
        } else if fields.parent.is_none() {
            SaltRule::FirstBlock
        } else {
            SaltRule::NoBlock
        };
        self.assemble(kind, &fields, rule)
    }

    fn keyed(&mut self, items: u32) -> Result<Event, Fail> {
        let start = self.reader.position();
        let kind = self.find_type(items)?;
        self.reader.seek(start);
        let mut fields = Fields::default();
        for _ in 0..items {
            let key = fields::key(&mut self.reader)?;
            let field = key.map_or(Field::Other, |key| kind.named(key));
            self.field(field, &mut fields)?;
        }
        self.assemble(kind, &fields, SaltRule::EveryBlock)
    }

    /// The event's type: mostly the first key, but it may stand anywhere.
    fn find_type(&mut self, items: u32) -> Result<Kind, Fail> {
        for _ in 0..items {
            if fields::key(&mut self.reader)? == Some(b"type") {
                return self.tag();
            }
            self.reader.skip()?;
        }
        Err(Fail::MALFORMED)
    }

    fn tag(&mut self) -> Result<Kind, Fail> {
        match self.reader.value()? {
            Value::Text(tag) => Kind::of(tag),
            _ => Err(Fail::MALFORMED),
        }
    }

    fn field(&mut self, field: Field, into: &mut Fields<'a>) -> Result<(), Fail> {
        let reader = &mut self.reader;
        match field {
            Field::Hashes => into.names = fields::names(reader, &mut self.batch.names)?,
            Field::Tokens => {
                (into.tokens, into.pairs) = fields::tokens(reader, &mut self.batch.tokens)?;
            }
            Field::LocalKeys => {
                into.locals = fields::local_keys(reader, &mut self.batch.locals)?;
            }
            Field::Parent => into.parent = fields::optional_name(reader)?,
            Field::BlockSize => into.block_size = fields::unsigned(reader)?,
            Field::LoraId => into.lora_id = fields::signed(reader)?,
            Field::Medium => into.medium = fields::label(reader)?,
            Field::Lora => into.lora = fields::label(reader)?,
            Field::LoraOrOptions => {
                let start = reader.position();
                if let Value::Map(options) = reader.value()? {
                    into.salt = fields::salt_option(reader, options)?;
                } else {
                    reader.seek(start);
                    into.lora = fields::label(reader)?;
                }
            }
            Field::Salt => into.salt = fields::label(reader)?,
            Field::ExtraKeys => {
                into.extra_keys = Some(reader.position());
                reader.skip()?;
            }
            Field::Group => into.group = fields::group(reader)?,
            Field::GroupKind => into.kind = fields::text(reader)?,
            Field::Window => into.window = fields::unsigned(reader)?,
            Field::Locality => into.remote = fields::text(reader)?.is_some_and(fields::is_remote),
            Field::Other => reader.skip()?,
        }
        Ok(())
    }

    fn assemble(&mut self, kind: Kind, fields: &Fields<'a>, rule: SaltRule) -> Result<Event, Fail> {
        if matches!(kind, Kind::Clear) {
            return Ok(Event::Clear);
        }
        let names = fields.names.clone().ok_or(Fail::MALFORMED)?;
        let group_kind = |kind| fields::group_kind(kind, fields.window);
        let group_kind = fields.kind.map(group_kind);
        let medium = fields.medium.map(|medium| self.batch.text(medium));
        if matches!(kind, Kind::Remove) {
            return Ok(Event::Remove(Remove {
                names,
                medium,
                remote: fields.remote,
                group: fields.group,
                kind: group_kind,
            }));
        }
        let (images, salts) = (self.batch.images.len(), self.batch.salts.len());
        let extra_keys = self.extra_keys(fields, names.len(), rule)?;
        Ok(Event::Store(Store {
            names,
            tokens: fields.tokens.clone(),
            locals: fields.locals.clone(),
            pairs: fields.pairs,
            parent: fields.parent,
            block_size: fields.block_size,
            lora: fields.lora.map(|lora| self.batch.text(lora)),
            lora_id: fields.lora_id.filter(|_| fields.lora.is_none()),
            salt: fields.salt.map(|salt| self.batch.text(salt)),
            medium,
            remote: fields.remote,
            group: fields.group,
            kind: group_kind,
            images: images..self.batch.images.len(),
            salts: salts as u32..self.batch.salts.len() as u32,
            extra_keys,
        }))
    }

    /// Files the event's extra keys; whether there were any.
    fn extra_keys(
        &mut self,
        fields: &Fields<'a>,
        hashes: usize,
        rule: SaltRule,
    ) -> Result<bool, Fail> {
        let Some(position) = fields.extra_keys else {
            return Ok(false);
        };
        let end = self.reader.position();
        self.reader.seek(position);
        let any = self.blocks_of_keys(fields.lora, hashes, rule);
        self.reader.seek(end);
        any.map_err(|fail| match fail {
            Fail::Fault { reason, .. } => Fail::Fault {
                reason,
                hashes: hashes as u64,
            },
            Fail::Broken(_) => fail,
        })
    }

    fn blocks_of_keys(
        &mut self,
        lora: Option<&str>,
        hashes: usize,
        rule: SaltRule,
    ) -> Result<bool, Fail> {
        let blocks = match self.reader.value()? {
            Value::Nil => return Ok(false),
            Value::Array(blocks) if blocks as usize == hashes => blocks,
            _ => return Err(fields::EXTRA_KEYS),
        };
        let mut any = false;
        for block in 0..blocks {
            fields::extra_keys(&mut self.reader, &mut self.keys)?;
            if !self.keys.is_empty() {
                any = true;
                classify_block(&mut self.batch, block, &self.keys, lora, rule);
            }
        }
        Ok(any)
    }
}
