//! Any bytes, decoded and prepared.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| kvindex_fuzz::decode(input));

/// Replays the files that are named.
#[cfg(not(fuzzing))]
fn main() {
    kvindex_fuzz::replay(kvindex_fuzz::decode);
}
