//! The shape of an answer, end to end in Rust.
use kvindex::error::DecodeError;
use kvindex::event::{Batch, Event, Name, Store};
use kvindex::key::{BlockHasher, SEED};
use kvindex::{Blocks, Config, Index, Options, Origin, Walk};

fn index() -> Index {
    Index::new(Config {
        block_size: 1,
        registered_only: false,
        orphan_blocks: 100,
    })
    .unwrap()
}

fn stored(parent: Option<u64>, blocks: &[(u64, u32)], medium: Option<&str>) -> Batch {
    let mut batch = Batch::default();
    batch.names = blocks.iter().map(|b| Name::from_integer(b.0)).collect();
    batch.tokens = blocks.iter().map(|b| b.1).collect();
    let medium = medium.map(|m| batch.text(m));
    batch.events.push(Event::Store(Store {
        names: 0..blocks.len(),
        tokens: 0..blocks.len(),
        pairs: false,
        parent: parent.map(Name::from_integer),
        block_size: None,
        lora: None,
        lora_id: None,
        salt: None,
        medium,
        remote: false,
        group: None,
        kind: None,
        images: 0..0,
        salts: 0..0,
        extra_keys: false,
    }));
    batch
}

fn apply(index: &Index, worker: &str, batch: Batch) -> Result<kvindex::Report, DecodeError> {
    let prepared = index.prepare(batch, false)?;
    Ok(index
        .apply(
            &prepared,
            &Origin {
                worker,
                rank: 0,
                source: "",
                seq: None,
                epoch: None,
            },
        )
        .unwrap())
}

#[test]
fn test_depths_follow_tiers_and_forks() {
    let index = index();
    let report = apply(&index, "a", stored(None, &[(1, 1), (2, 2), (3, 3)], None)).unwrap();
    assert_eq!(report.stored, 3);
    apply(&index, "b", stored(None, &[(1, 1), (2, 2)], None)).unwrap();
    apply(&index, "b", stored(Some(2), &[(9, 9)], Some("CPU"))).unwrap();
    let mut walk = Walk::default();
    let options = Options {
        candidates: None,
        weights: [1.0, 0.75, 0.25, 0.25],
        cascade: false,
    };
    let find = |tokens: &[u32], walk: &mut Walk| {
        let blocks = Blocks::Tokens {
            tokens,
            images: &[],
            seed: SEED,
        };
        let found = index.find(&blocks, &options, walk).unwrap();
        let mut rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| {
                (
                    found.names.get(row.holder).unwrap().0.to_string(),
                    row.tiers,
                )
            })
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(
        find(&[1, 2, 3], &mut walk),
        [("a".into(), [3, 0, 0, 0]), ("b".into(), [2, 0, 0, 0])]
    );
    assert_eq!(
        find(&[1, 2, 9], &mut walk),
        [("a".into(), [2, 0, 0, 0]), ("b".into(), [2, 1, 0, 0])]
    );
    assert_eq!(find(&[2], &mut walk), []);
    assert_eq!(index.blocks().unwrap(), 4);
    assert!(index.remove_worker("a").unwrap());
    assert_eq!(find(&[1, 2, 3], &mut walk), [("b".into(), [2, 0, 0, 0])]);
    assert_eq!(index.blocks().unwrap(), 3);
    let _ = BlockHasher::new(0);
}
