//! The rules of the model that look at one event or one holder alone.

use std::rc::Rc;

use kvindex::event::{Batch, GroupKind, Name, Reason, Store};
use kvindex::profile::{Kind, Profile};
use kvindex::{Origin, Report, Status};

use super::model::{Content, Given, Hash, Holder, Item, Path};

pub(super) fn ignore(report: &mut Report, reason: Reason, hashes: u64) {
    report.ignored += hashes;
    report.reasons[reason as usize] += hashes;
}

pub(super) fn advance(holder: &mut Holder, origin: &Origin<'_>) -> Status {
    let Some(seq) = origin.seq else {
        return Status::Ok;
    };
    let last = holder.cursors.get(origin.source).copied();
    if last.is_some_and(|last| seq <= last) {
        holder.duplicates += 1;
        return Status::Duplicate;
    }
    holder.cursors.insert(origin.source.into(), seq);
    holder.seq = Some(seq);
    holder.duplicates = 0;
    match last {
        Some(last) if seq > last + 1 => Status::Gap(last + 1, seq - 1),
        _ => Status::Ok,
    }
}

/// A block that FlexKV names.
pub(super) fn flexkv(name: u64) -> Rc<Content> {
    Rc::new(Content {
        flexkv: Some(name),
        ..Content::default()
    })
}

/// What is wrong with a store's names.
pub(super) fn check_names(names: &[Name], store: &Store) -> Result<(), Reason> {
    let parent = store.parent;
    if parent.is_some_and(|parent| names.iter().any(|name| name.matches(parent))) {
        return Err(Reason::Parent);
    }
    let repeated = |at: usize| names[..at].iter().any(|name| name.matches(names[at]));
    if !store.tokens.is_empty() && (0..names.len()).any(repeated) {
        return Err(Reason::DuplicateHash);
    }
    Ok(())
}

/// How many hashes a store has tokens for, or does without.
pub(super) fn count(names: &[Name], store: &Store, size: u64) -> Result<usize, Reason> {
    if store.tokens.is_empty() {
        return Ok(names.len());
    }
    let tokens = (store.tokens.len() - usize::from(store.pairs)) as u128;
    let (hashes, size) = (names.len() as u128, u128::from(size));
    if size > 0 && tokens == hashes * size {
        Ok(names.len())
    } else if size > 0 && hashes > 0 && (hashes - 1) * size < tokens && tokens < hashes * size {
        Ok(names.len() - 1)
    } else {
        Err(Reason::Tokens)
    }
}

/// What an event says of a namespace: sources that always name theirs mean by
/// silence that there is none.
pub(super) fn given(profile: &Profile, lora: Option<String>, salt: Option<String>) -> Given {
    let silence = (profile.kind == Kind::Sglang).then(String::new);
    (lora.or(silence.clone()), salt.or(silence))
}

/// The last block of a hash below a parent.
pub(super) fn extended(profile: &Profile, item: &Item, hash: &Hash, mut path: Path) -> Path {
    let parent = path.last().filter(|_| profile.kind != Kind::Sglang);
    let inherited = parent.map(|block| (block.lora.clone(), block.salt.clone()));
    let (lora, salt) = inherited.unwrap_or_default();
    let lora = item.lora.clone().unwrap_or(lora);
    let salt = hash.salt.clone().or(item.salt.clone()).unwrap_or(salt);
    for (tokens, images) in &hash.blocks {
        path.push(Rc::new(Content {
            lora: lora.clone(),
            salt: salt.clone(),
            tokens: tokens.clone(),
            images: images.clone(),
            flexkv: None,
        }));
    }
    path
}

/// Whether an event says that its group is not one of full attention.
fn is_other(kind: Option<GroupKind>) -> bool {
    kind.is_some_and(|kind| kind != GroupKind::Full)
}

/// Whether a store belongs to the first group of full attention; learns from it.
pub(super) fn main_store(holder: &mut Holder, group: Option<u32>, kind: Option<GroupKind>) -> bool {
    let Some(number) = group else {
        return !is_other(kind);
    };
    if let Some(kind) = kind {
        holder.kinds.insert(number, kind);
    }
    match kind {
        _ if is_other(kind) => false,
        None if number != 0 => holder.main == group,
        _ => *holder.main.get_or_insert(number) == number,
    }
}

/// Whether a removal belongs to that group.
pub(super) fn main_removal(holder: &Holder, group: Option<u32>, kind: Option<GroupKind>) -> bool {
    match (kind, group) {
        (Some(kind), _) => kind == GroupKind::Full,
        (None, None) => true,
        (None, Some(group)) => holder.main.map_or_else(
            || group == 0 && !is_other(holder.kinds.get(&0).copied()),
            |main| group == main,
        ),
    }
}

/// The tokens and images of one hash's blocks.
pub(super) fn contents(
    size: usize,
    batch: &Batch,
    store: &Store,
    hash: usize,
    unit: usize,
) -> Vec<(Vec<u32>, Vec<u64>)> {
    let tokens = &batch.tokens[store.tokens.clone()];
    let block = |within: usize| {
        let start = (hash * unit + within) * size;
        let end = start + size + usize::from(store.pairs);
        // What begins nowhere in the hash lies in its last block.
        let next = i64::try_from((within + 1) * size).unwrap();
        let next = if within + 1 == unit { i64::MAX } else { next };
        let images = batch.images[store.images.clone()].iter();
        let here = images.filter(|image| image.block as usize == hash && image.offset < next);
        let mut images: Vec<u64> = here.map(|image| image.hash).collect();
        images.sort_unstable();
        (tokens[start..end].to_vec(), images)
    };
    (0..unit).map(block).collect()
}
