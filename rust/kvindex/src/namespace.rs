//! Namespaces in use: (LoRA name, cache salt) and how the blocks are keyed, as
//! dense numbers that are counted by the runs that lie in them.

use std::collections::HashMap;
use std::sync::Arc;

/// How blocks are keyed. A query is walked for each family that lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// By their tokens.
    #[default]
    Single,
    /// By the token that follows, too.
    Pair,
    /// By the names that FlexKV computes from the tokens.
    FlexKv,
    /// By the digests that SGLang computes from the tokens, each for itself.
    Sglang,
}

/// A namespace's texts; empty = none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Namespace {
    pub(crate) lora: Arc<str>,
    pub(crate) salt: Arc<str>,
    pub(crate) family: Family,
}

impl Namespace {
    /// Whether it names neither.
    pub(crate) fn is_bare(&self) -> bool {
        self.lora.is_empty() && self.salt.is_empty()
    }
}

/// All namespaces that runs lie in.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    slots: Vec<(Namespace, u32)>,
    free: Vec<u32>,
    numbers: HashMap<Namespace, u32>,
}

impl Namespaces {
    pub(crate) fn get(&self, number: u32) -> &Namespace {
        &self.slots[number as usize].0
    }

    /// The number of a namespace, counted once more.
    pub(crate) fn enter(&mut self, namespace: &Namespace) -> u32 {
        if let Some(&number) = self.numbers.get(namespace) {
            self.slots[number as usize].1 += 1;
            return number;
        }
        let slot = (namespace.clone(), 1);
        let number = if let Some(number) = self.free.pop() {
            self.slots[number as usize] = slot;
            number
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        self.numbers.insert(namespace.clone(), number);
        number
    }

    /// Counts a namespace once less.
    pub(crate) fn leave(&mut self, number: u32) {
        let (namespace, count) = &mut self.slots[number as usize];
        *count -= 1;
        if *count == 0 {
            self.numbers.remove(namespace);
            *namespace = Namespace::default();
            self.free.push(number);
        }
    }
}
