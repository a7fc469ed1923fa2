//! From which bytes? Payloads of every version, faulty ones, and random ones.

mod errors;
mod extra;
mod faults;
mod layouts;
mod numbers;
mod random;
mod streams;
mod wire;

use kvindex::decode::decode;
use kvindex::event::{Batch, Event, Name, Remove, Store};
use wire::Wire;

/// The batch of these events, which has to be readable.
fn read(events: Vec<Wire>) -> Batch {
    decode(&wire::batch(events).bytes()).expect("a readable batch")
}

/// The only event of a batch, a store.
fn store(batch: &Batch) -> &Store {
    match batch.events.as_slice() {
        [Event::Store(store)] => store,
        other => panic!("expected one store, found {other:?}"),
    }
}

/// The only event of a batch, a removal.
fn remove(batch: &Batch) -> &Remove {
    match batch.events.as_slice() {
        [Event::Remove(remove)] => remove,
        other => panic!("expected one removal, found {other:?}"),
    }
}

fn text(batch: &Batch, id: Option<u32>) -> Option<&str> {
    id.map(|id| &*batch.texts[id as usize])
}

fn integers(values: &[u64]) -> Vec<Name> {
    values.iter().copied().map(Name::from_integer).collect()
}
