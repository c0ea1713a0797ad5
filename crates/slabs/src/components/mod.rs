//! Each part of the native allocator against a model of its own, and the whole of it on a kernel that may refuse:
//! random instructions, everything compared and counted again after each. For property tests and fuzzers only.
//!
//! The heap is the process's: one run at a time, which leaves nothing behind.

extern crate std;

mod central;
mod heap;
mod span;
mod stacks;
mod transfer;

use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

use spandrel_os::rseq;

use crate::check::{Census, check};
use crate::class::{SHARDS, class_of};
use crate::refuse::refuse;
use crate::{cpu_cache, map, thread_cache};

/// Whose caches serve the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// That of its thread.
    OfThreads,
    /// That of whatever processor it runs on. Nothing is run where there are no restartable sequences.
    OfProcessors,
}

/// What is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Component {
    /// One span.
    Span,
    /// The central lists of a class.
    Central,
    /// The transfer caches of a class.
    Transfer,
    /// The stacks of one cache.
    Stacks(Caches),
    /// All of it. One in this many system calls is refused: those that make memory accessible, give it back,
    /// and make huge pages whole; 0 for none.
    Heap(Caches, [u8; 3]),
}

/// One step. What the numbers mean is the component's business: every number is an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What to do.
    pub what: u8,
    /// Mostly a size or a count.
    pub first: u16,
    /// Mostly a choice among what is there.
    pub second: u16,
}

impl Instruction {
    /// One of `n` kinds.
    fn kind(self, n: u8) -> u8 {
        self.what % n
    }

    /// A count from 1 to `most`: every other time a small one.
    fn count(self, most: usize) -> usize {
        let most = if self.first & 1 == 0 { most.min(4) } else { most };
        usize::from(self.first >> 1) % most + 1
    }

    /// An index into something of this length, if it has any.
    fn index(self, length: usize) -> Option<usize> {
        usize::from(self.second).checked_rem(length)
    }

    fn shard(self) -> usize {
        usize::from(self.what >> 4) % SHARDS
    }

    /// A class: of objects with homes, of many or few in a span, of one.
    fn class(self) -> usize {
        let sizes = [16, 100, 1000, 9000, 40_000, 200_000];
        class_of(sizes[usize::from(self.what) % sizes.len()]).expect("it is small")
    }

    /// Takes objects out of those that are there: neighbours, as they were made or the other way round.
    fn choose(self, objects: &mut Vec<usize>, most: usize) -> Vec<usize> {
        let Some(from) = self.index(objects.len()) else { return Vec::new() };
        let to = (from + self.count(most)).min(objects.len());
        let mut chosen: Vec<usize> = objects.drain(from..to).collect();
        if self.first & 2 == 0 {
            chosen.reverse();
        }
        chosen
    }
}

/// Runs the instructions, in a thread of their own.
///
/// # Panics
/// When the component and its model differ, or something is not as it should be.
pub fn run(component: Component, instructions: &[Instruction]) {
    alone(|| match component {
        Component::Span => span::run(instructions),
        Component::Central => central::run(instructions),
        Component::Transfer => transfer::run(instructions),
        Component::Stacks(caches) if begin(caches) => stacks::run(caches, instructions),
        Component::Heap(caches, one_in) if begin(caches) => heap::run(caches, one_in, instructions),
        _ => {}
    });
}

/// Runs a program that has the heap to itself, in a thread of its own.
fn alone(program: impl FnOnce() + Send) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(crate::start());
    // For good: one that got no memory would do without.
    (0..SHARDS).for_each(|shard| _ = crate::transfer::is_full(shard, 1));
    let ended = std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            assert_eq!(census().handed_out, 0, "something was left behind");
            program();
            refuse([0; 3], 0);
            crate::trim();
        });
        thread.join()
    });
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
    let census = census();
    assert_eq!((census, crate::stats().map(|stats| stats.spans)), (Census::default(), Some(0)));
}

/// Has the calling thread use such caches; false: there are none.
fn begin(caches: Caches) -> bool {
    match caches {
        Caches::OfThreads => {
            let class = class_of(1000).expect("it is small");
            let object = thread_cache::refill(class);
            // Perhaps its memory was refused: then it has a cache the next time, or none.
            if object != 0 && !thread_cache::push(class, object) {
                crate::transfer::give(0, class, &[object]);
            }
            true
        }
        Caches::OfProcessors => {
            rseq::start();
            crate::start_cpu_caches();
            cpu_cache::attached().is_some()
        }
    }
}

/// Everything counted again.
fn census() -> Census {
    match check() {
        Ok(census) => census,
        Err(fault) => panic!("{fault:x?}"),
    }
}

/// Whether an object of a class lies at an address.
fn assert_is_object(class: usize, object: usize) {
    let page = map::page_of(object);
    assert_eq!(usize::from(page.class().load(core::sync::atomic::Ordering::Relaxed)), class);
    assert!(crate::span::Span::covering(page, class).index_of(object).is_some(), "{object:#x}");
}

#[cfg(test)]
mod spoilt;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instructions() -> impl Strategy<Value = Vec<Instruction>> {
        let one = any::<(u8, u16, u16)>();
        let one = one.prop_map(|(what, first, second)| Instruction { what, first, second });
        prop::collection::vec(one, 1..300)
    }

    fn caches() -> impl Strategy<Value = Caches> {
        prop::sample::select(std::vec![Caches::OfThreads, Caches::OfProcessors])
    }

    /// `PROPTEST_CASES` asks for more; everything is counted again after every instruction. Not shrunk: what went
    /// wrong once goes wrong with what comes after it in the same heap.
    fn config() -> ProptestConfig {
        let asked = std::env::var_os("PROPTEST_CASES").is_some();
        let default = ProptestConfig::default();
        let default = ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..default };
        if asked { default } else { ProptestConfig { cases: 32, ..default } }
    }

    #[test]
    fn work_beside_a_slow_push_is_none_of_the_stacks() {
        let take = Instruction { what: 0, first: 127, second: 0 };
        let put_on = Instruction { what: 7, first: 7, second: 7 };
        let give = Instruction { what: 4, first: 0, second: 0 };
        let round = [take, put_on, give, give, give, give];
        let rounds: Vec<Instruction> = round.iter().copied().cycle().take(3000).collect();
        run(Component::Stacks(Caches::OfProcessors), &rounds);
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_span_is_as_its_model(instructions in instructions()) {
            run(Component::Span, &instructions);
        }

        #[test]
        fn central_lists_are_as_their_model(instructions in instructions()) {
            run(Component::Central, &instructions);
        }

        #[test]
        fn transfer_caches_are_as_their_model(instructions in instructions()) {
            run(Component::Transfer, &instructions);
        }

        #[test]
        fn the_stacks_of_a_cache_are_as_their_model(
            caches in caches(),
            instructions in instructions(),
        ) {
            run(Component::Stacks(caches), &instructions);
        }

        #[test]
        fn a_heap_whose_kernel_obeys_is_as_its_model(
            caches in caches(),
            instructions in instructions(),
        ) {
            run(Component::Heap(caches, [0; 3]), &instructions);
        }

        #[test]
        fn a_heap_whose_kernel_refuses_is_as_its_model(
            caches in caches(),
            one_in in prop::array::uniform3(0..4u8),
            instructions in instructions(),
        ) {
            run(Component::Heap(caches, one_in), &instructions);
        }
    }
}
