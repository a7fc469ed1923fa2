//! Random operations, for the property tests.

use kvindex::event::GroupKind;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    ChainText, FLEXKV, FLEXKV_PROFILE, OddText, Op, POOLS, PROFILES, ParentText, Predicted,
    RemoveText, SENDERS, SPACES, Sent, StoreText, TokensText, Told, WORKERS,
};

fn chain() -> impl Strategy<Value = ChainText> {
    let letter = prop_oneof![12 => Just(0_u32), 3 => Just(1), 1 => Just(2)];
    // Which of the case's namespaces and dialects.
    let (space, dialect) = (0..4_usize, 0..4_u64);
    (vec(letter, 1..10), space, dialect).prop_map(|(letters, space, dialect)| ChainText {
        base: 0,
        letters,
        space,
        dialect,
    })
}

fn medium() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![
        6 => Just(None),
        1 => Just(Some("gpu")),
        4 => Just(Some("CPU")),
        2 => Just(Some("storage")),
        1 => Just(Some("External")),
        1 => Just(Some("ramdisk")),
    ]
}

fn group() -> impl Strategy<Value = OddText> {
    let kind = prop_oneof![
        Just(None),
        Just(Some(GroupKind::Full)),
        Just(Some(GroupKind::Other))
    ];
    (prop_oneof![Just(None), (0..3_u32).prop_map(Some)], kind)
        .prop_map(|(group, kind)| OddText::Group(group, kind))
}

fn odd() -> impl Strategy<Value = OddText> {
    let sizes = prop_oneof![
        Just(Some(0)),
        Just(Some(2)),
        Just(Some(3)),
        Just(Some(4)),
        Just(Some(u64::MAX)),
        Just(None),
    ];
    prop_oneof![
        40 => Just(OddText::Plain),
        3 => sizes.prop_map(OddText::Size),
        1 => (6..8_i64).prop_map(OddText::LoraId),
        2 => group(),
        1 => Just(OddText::Remote),
        1 => Just(OddText::ExtraKeys),
        1 => Just(OddText::Twice),
    ]
}

fn some<T: Clone + std::fmt::Debug>(
    one_in: u32,
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![one_in - 1 => Just(None), 1 => value.prop_map(Some)]
}

fn store() -> impl Strategy<Value = StoreText> {
    let unit = prop_oneof![10 => Just(1_usize), 2 => Just(2), 2 => 3..6_usize];
    let tokens = prop_oneof![
        24 => Just(TokensText::Full),
        5 => Just(TokensText::None),
        1 => Just(TokensText::Partial),
        1 => Just(TokensText::TooFew),
    ];
    let parent = prop_oneof![
        30 => Just(ParentText::True),
        12 => (0..60_usize).prop_map(ParentText::Held),
        2 => Just(ParentText::Root),
        1 => Just(ParentText::Unknown),
        1 => Just(ParentText::Itself),
    ];
    let where_ = (
        chain(),
        prop_oneof![4 => Just(0_usize), 3 => 0..8_usize],
        unit,
        tokens,
        parent,
        medium(),
    );
    let what = (
        prop_oneof![2 => Just(true), 1 => Just(false)],
        some(3, 0..3_u32),
        some(10, (0..3_u32, -1..5_i64)),
        prop_oneof![12 => Just(false), 1 => Just(true)],
        odd(),
    );
    (where_, what).prop_map(|((chain, above, unit, tokens, parent, medium), what)| {
        let (spoken, salt_of, image, pairs, odd) = what;
        StoreText {
            chain,
            above,
            unit,
            tokens,
            parent,
            medium,
            spoken,
            salt_of,
            image,
            pairs,
            odd,
        }
    })
}

fn told() -> impl Strategy<Value = Told> {
    let medium = prop_oneof![10 => medium(), 1 => Just(Some("nowhere"))];
    let remove = (chain(), 0..9_usize, medium, odd()).prop_map(|(chain, above, medium, odd)| {
        Told::Remove(RemoveText {
            chain,
            above,
            medium,
            odd,
        })
    });
    prop_oneof![
        30 => store().prop_map(Told::Store),
        6 => remove,
        8 => (0..40_usize, 1..4_usize).prop_map(|(from, count)| Told::RemoveHeld(from, count)),
        6 => (0..12_usize).prop_map(Told::Again),
        1 => Just(Told::Clear),
        1 => (0..3_u64).prop_map(Told::Unreadable),
    ]
}

fn senders() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 0..WORKERS.len(), 2 => WORKERS.len()..SENDERS]
}

fn sent() -> impl Strategy<Value = Sent> {
    let who = (
        senders(),
        prop_oneof![4 => Just(0_u32), 1 => Just(1)],
        any::<bool>(),
    );
    let seq = some(8, 0..12_u64);
    let epoch = prop_oneof![30 => Just(0_u64), 5 => Just(1), 1 => Just(9)];
    let source = prop_oneof![3 => Just(""), 1 => Just("other")];
    let what = (epoch, 0..9_u32, vec(told(), 1..5));
    (who, source, seq, what).prop_map(|(who, source, seq, (epoch, now, events))| {
        let (sender, rank, ranked) = who;
        Sent {
            sender,
            rank,
            ranked,
            source,
            seq,
            epoch,
            now,
            events,
        }
    })
}

fn predicted() -> impl Strategy<Value = Predicted> {
    let prompt = (chain(), prop_oneof![2 => Just(0), 1 => 0..SPACES.len()]);
    let who = (
        0..WORKERS.len(),
        prop_oneof![4 => Just(0_u32), 1 => Just(1)],
    );
    let capacity = some(3, 0..6_u32);
    (prompt, who, 0..9_u32, 0..6_u32, capacity).prop_map(|(prompt, who, now, ttl, capacity)| {
        Predicted {
            worker: who.0,
            rank: who.1,
            letters: prompt.0.letters,
            space: prompt.1,
            now,
            ttl,
            capacity,
        }
    })
}

/// Operations, few of which forget much, over some namespaces and dialects.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let profile = prop_oneof![3 => 0..PROFILES, 1 => Just(FLEXKV_PROFILE)];
    let registered = (senders(), profile);
    let pair = (
        prop::sample::select(&WORKERS[..]),
        prop::sample::select(&POOLS[..]),
    );
    let detached = pair.clone();
    let op = prop_oneof![
        60 => sent().prop_map(Op::Batch),
        4 => registered.prop_map(|(sender, profile)| Op::Register(sender, profile)),
        2 => senders().prop_map(Op::Remove),
        1 => (senders(), 0..2_u32).prop_map(|(sender, rank)| Op::Reset(sender, rank)),
        2 => pair.prop_map(|(worker, pool)| Op::Attach(worker, pool)),
        1 => detached.prop_map(|(worker, pool)| Op::Detach(worker, pool)),
        1 => Just(Op::Clear),
        4 => predicted().prop_map(Op::Predict),
        2 => (0..12_u32).prop_map(Op::Expire),
        4 => Just(Op::Totals),
    ];
    let dialect =
        prop_oneof![4 => Just(0_u64), 1 => Just(1), 4 => Just(2), 3 => 3..8_u64, 4 => Just(FLEXKV)];
    let pool = (vec(0..SPACES.len(), 1..4), vec(dialect, 1..4));
    (pool, vec(op, 1..40)).prop_map(|((spaces, dialects), mut ops)| {
        let batches = ops.iter_mut().filter_map(|op| match op {
            Op::Batch(sent) => Some(sent),
            _ => None,
        });
        for told in batches.flat_map(|sent| &mut sent.events) {
            let chain = match told {
                Told::Store(store) => &mut store.chain,
                Told::Remove(remove) => &mut remove.chain,
                _ => continue,
            };
            chain.space = spaces[chain.space % spaces.len()];
            chain.dialect = dialects[chain.dialect as usize % dialects.len()];
        }
        ops
    })
}
