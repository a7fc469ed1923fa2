//! Random operations: the index answers as the model does, whatever is done.

mod common;

use common::config;
use common::ops::strategy::ops;
use common::play::run;
use kvindex::Config;
use proptest::prelude::*;

fn configs() -> impl Strategy<Value = Config> {
    let orphans = prop_oneof![1 => Just(0_u32), 1 => Just(4), 3 => Just(1000)];
    let registered = prop_oneof![19 => Just(false), 1 => Just(true)];
    (1..3_u32, orphans, registered).prop_map(|(block_size, orphan_blocks, registered_only)| {
        Config {
            registered_only,
            group_rules: false,
            orphan_blocks,
            ..config(block_size)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn test_index_agrees_with_the_model(
        config in configs(),
        filled in prop_oneof![2 => Just(false), 1 => Just(true)],
        ops in ops(),
    ) {
        run(config, filled, &ops);
    }
}
