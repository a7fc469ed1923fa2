//! All interleavings of a writer and its readers, tried by loom.
//!
//! Each model is as small as what it is about: one or two writes while a query
//! runs. Loom runs it again for each order of the threads' steps, up to a number
//! of preemptions, and for each value that the memory model lets a load return.
//! A query writes nothing that a writer reads. So a load of an old value shows
//! all that an interrupted query would see, and models of the whole index do
//! with one preemption or none. Loom remembers the last seven values of a word.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --package kvindex --lib interleaved
//! ```

mod head;
mod index;
mod version;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

/// Tries all interleavings of a model from its call of [`loom::explore`] on, with
/// so many preemptions unless `LOOM_MAX_PREEMPTIONS` says otherwise.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let tried = Arc::new(AtomicU64::new(0));
    let (count, model) = (tried.clone(), Arc::new(model));
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = builder.max_branches.max(20_000);
    builder.expect_explicit_explore = true;
    let started = Instant::now();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        // The first thread has little stack.
        let model = model.clone();
        spawn(move || model()).join().unwrap();
    });
    let (tried, took) = (tried.load(Ordering::Relaxed), started.elapsed());
    println!("{tried} interleavings in {:.1} s", took.as_secs_f32());
}

/// A thread with stack enough for a query or a batch, in words.
fn spawn(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let builder = thread::Builder::new().stack_size(1 << 15);
    builder.spawn(run).unwrap()
}
