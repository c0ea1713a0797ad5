//! Random sequences of calls against a model: what is handed out is nobody else's, what goes back
//! is unused, all counts are right after every call, and nothing is lost in the end.

mod common;

use common::calls::{Call, run};
use proptest::prelude::*;
use spandrel_pageheap::{Order, Settings};
use spandrel_pages::{HugeLength, Length};

fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => 1..4u32,
        6 => 1..129u32,
        4 => 120..270u32,
        3 => 256..2000u32,
        1 => prop::sample::select(vec![256, 512, 2048, 131_072, 131_073]),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        14 => (sizes(), prop_oneof![8 => Just(0), 2 => 0..12u32], prop::sample::select(vec![1, 2, 16, 17, 500]))
            .prop_map(|(pages, align, objects)| Call::Allocate { pages, align: 1 << align, objects }),
        10 => any::<usize>().prop_map(Call::Free),
        1 => (0..40_000u32, 0..600u32).prop_map(|(first, pages)| Call::FreeWrong { first, pages }),
        3 => (any::<usize>(), prop_oneof![1..40u32, 1..700u32]).prop_map(|(which, by)| Call::Grow { which, by }),
        1 => (prop_oneof![1..600u32, Just(u32::MAX)], any::<bool>())
            .prop_map(|(pages, asked)| Call::Release { pages, asked }),
        2 => (prop_oneof![0..300u64, 0..20_000u64], prop_oneof![Just(0), 0..50_000u32])
            .prop_map(|(after_ms, per_s)| Call::Step { after_ms, per_s }),
        1 => Just(Call::Restore),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let orders = vec![
        Order::RangeThenAllocations,
        Order::RangeThenPages,
        Order::AllocationsThenRange,
        Order::BestFit,
    ];
    let slack = prop_oneof![Just(u32::MAX), 0..400u32];
    (prop::sample::select(orders), slack, 0..20u32, any::<bool>()).prop_map(
        |(order, slack, least, release_guarded)| Settings {
            order,
            release_guarded,
            region_slack: Length(slack),
            cache_least: HugeLength(least),
            ..Settings::DEFAULT
        },
    )
}

/// `PROPTEST_CASES` asks for more; every call is followed by a count over all records.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if asked { default } else { ProptestConfig { cases: 24, ..default } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_a_kernel_that_obeys(
        settings in settings(),
        begins_small in 0..3u32,
        calls in prop::collection::vec(calls(), 1..500),
    ) {
        run(settings, (0, 0, 0), begins_small, &calls);
    }

    #[test]
    fn with_a_kernel_that_refuses(
        settings in settings(),
        refuse in (0..6u32, 0..6u32, 0..3u32),
        begins_small in 0..3u32,
        calls in prop::collection::vec(calls(), 1..500),
    ) {
        run(settings, refuse, begins_small, &calls);
    }
}
