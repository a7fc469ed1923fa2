//! Operations done to an index and to the model of it, compared after each.

use kvindex::{Config, Moment, Origin, Prediction};

use super::agree::Both;
use super::answer::Prompt;
use super::apply;
use super::ops::{Op, Predicted, SENDERS, SPACES, Sent, Told, profile, sender, tokens};
use super::parties::key;
use super::said::{Said, batch, store};

/// Runs that no operation touches: with them a clear is swept in several steps.
const FILLER: u64 = 300;

fn send(both: &mut Both, sent: &Sent, epochs: &[Option<u64>; SENDERS], before: &mut Vec<Said>) {
    let size = both.model.config.block_size as usize;
    for told in &sent.events {
        if let Told::Store(store) = told {
            both.flexkv.extend(store.prompt(size));
        }
    }
    let said = sent.said(&both.model, before);
    before.extend(said.iter().cloned());
    let mut batch = batch(said);
    batch.rank = sent.ranked.then_some(sent.rank);
    let origin = Origin {
        sender: sender(sent.sender),
        rank: if sent.ranked { 3 } else { sent.rank },
        source: sent.source,
        seq: sent.seq,
        epoch: match sent.epoch {
            0 => None,
            1 => epochs[sent.sender],
            stale => Some(stale * 1000),
        },
        now: moment(sent.now),
    };
    both.model.now = f64::from(sent.now);
    both.apply(batch, &origin);
}

fn moment(seconds: u32) -> Moment {
    Moment::new(seconds.into()).expect("a number")
}

fn predict(both: &mut Both, op: &Predicted) {
    let (lora, salt) = SPACES[op.space];
    let prompt = Prompt {
        tokens: tokens(&op.letters, both.model.config.block_size as usize),
        images: Vec::new(),
        lora: lora.into(),
        salt: salt.into(),
    };
    let prediction = Prediction {
        now: moment(op.now),
        deadline: moment(op.now + op.ttl),
        capacity: op.capacity,
    };
    both.predict(&key(sender(op.worker), op.rank), &prompt, prediction);
}

fn fill(both: &mut Both) {
    let size = both.model.config.block_size;
    for root in 0..FILLER {
        let tokens = vec![1000 + root as u32; size as usize];
        let said = store([1 << 60 | root], &tokens);
        apply(&both.index, "filler", batch([said.into()]));
    }
    both.stranger = "filler";
}

/// Does them all and takes everything away again: nothing is left.
pub(crate) fn run(config: Config, filled: bool, ops: &[Op]) {
    let mut both = Both::new(config);
    let mut others = 0;
    if filled && !config.registered_only {
        fill(&mut both);
        others = FILLER;
    }
    let (mut epochs, mut before) = ([None; SENDERS], Vec::new());
    for op in ops {
        match *op {
            Op::Batch(ref sent) => send(&mut both, sent, &epochs, &mut before),
            Op::Register(number, kind) => {
                let profile = profile(kind, config.block_size);
                epochs[number] = Some(both.register(sender(number), profile));
            }
            Op::Remove(number) => {
                both.remove(sender(number));
            }
            Op::Reset(number, rank) => {
                both.reset(sender(number), rank);
            }
            Op::Attach(worker, pool) => both.attach(worker, pool),
            Op::Detach(worker, pool) => {
                both.detach(worker, pool);
            }
            Op::Clear if others == 0 => {
                both.index.clear().unwrap();
                both.model.clear();
            }
            Op::Clear => {}
            Op::Predict(ref predicted) => predict(&mut both, predicted),
            Op::Expire(now) => both.expire(now.into()),
            Op::Totals => both.check_totals(others),
        }
        both.check(false);
    }
    both.check(true);
    both.check_totals(others);
    for number in 0..SENDERS {
        both.remove(sender(number));
    }
    both.index.remove_worker("filler").unwrap();
    let stats = both.index.stats().unwrap();
    let left = (
        stats.blocks,
        stats.runs,
        stats.names,
        stats.claims,
        stats.orphans,
        stats.predicted,
    );
    assert_eq!(left, (0, 0, 0, 0, 0, 0), "nothing is left");
}
