use super::{Samples, bound, bytes};

#[test]
fn quantiles_are_samples() {
    let mut samples = Samples((1..=1_000).rev().collect());
    samples.sort();
    assert_eq!(samples.quantile(0.5), 501);
    assert_eq!(samples.quantile(0.99), 991);
    assert_eq!(samples.quantile(1.0), 1_000);
    assert_eq!(Samples::default().quantile(0.5), 0);
}

#[test]
fn a_bucket_ends_at_or_above_its_samples_and_not_far_above() {
    for sample in (0..10_000).chain([u32::MAX - 1, u32::MAX]) {
        let bound = bound(sample);
        assert!(bound >= sample);
        assert!(u64::from(bound) <= u64::from(sample).max(4) * 5 / 4 + 1);
    }
}

#[test]
fn a_histogram_has_every_sample() {
    let mut samples = Samples(vec![70, 5, 64, 5_000, 65, 5]);
    samples.sort();
    let histogram = samples.histogram();
    assert_eq!(histogram, [(5, 2), (64, 1), (80, 2), (5_120, 1)]);
}

#[test]
fn bytes_are_counted_until_they_are_freed_on_another_thread() {
    let before = bytes();
    let block = vec![0u8; 50_000_000];
    // Other tests allocate meanwhile, but not that much.
    assert!(bytes().wrapping_sub(before) > 40_000_000);
    std::thread::spawn(move || drop(block))
        .join()
        .expect("ends");
    assert!(bytes().wrapping_sub(before).cast_signed() < 40_000_000);
}
