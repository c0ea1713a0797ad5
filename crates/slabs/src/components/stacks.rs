//! The stacks of a cache, of a thread or of the processor on which the run is held: what was put last is taken
//! first, of a full stack some goes on, and an empty one is refilled with other objects than it had.

extern crate std;

use std::collections::HashSet;
use std::vec::Vec;

use super::{Caches, Instruction, assert_is_object, census};
use crate::check::Fault;
use crate::class::{CLASS, class_of};
use crate::refuse::clock;
use crate::{cache, cpu_cache, thread_cache};

/// Of these sizes a stack has room for two, for some, for many, and for those of several homes.
const SIZES: [usize; 4] = [30_000, 3000, 100, 16];
const MOST: usize = 3000;

/// What the run's cache has of a class, the oldest first, and what lies in caches of other processors.
fn contents(caches: Caches, class: usize) -> Vec<usize> {
    let mut all = Vec::new();
    let mut see = |of: usize, object: usize| -> Result<(), Fault> {
        if of == class {
            all.push(object);
        }
        Ok(())
    };
    cache::fork_prepare();
    // SAFETY: all that is asked for of `crate::fork_prepare` are the locks of caches; no other thread runs.
    let seen = unsafe {
        match caches {
            Caches::OfThreads => thread_cache::visit(&mut see),
            Caches::OfProcessors => cpu_cache::alone_with_all(|is_ours| {
                assert!(is_ours);
                cpu_cache::visit(&mut see)
            }),
        }
    };
    // SAFETY: taken above.
    unsafe { cache::fork_done() };
    assert_eq!(seen, Ok(()));
    all
}

/// Keeps the calling thread where it is just now.
fn stay() {
    // SAFETY: a set of processors is plain bits, and the kernel reads it only.
    unsafe {
        let mut here: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&here), &here), 0);
    }
}

pub(super) fn run(caches: Caches, instructions: &[Instruction]) {
    stay();
    crate::trim();
    let mut live: Vec<(usize, usize)> = Vec::new();
    for step in instructions {
        let size = SIZES[usize::from(step.what >> 4) % SIZES.len()];
        let place = class_of(size).expect("it is small");
        match step.kind(8) {
            0..=3 => {
                for _ in 0..step.count(64) {
                    if live.len() >= MOST {
                        break;
                    }
                    let object = cache::pop(place);
                    let object = if object > 0 { object } else { cache::fetch(place) };
                    let page = crate::map::page_of(object);
                    let class = page.class().load(core::sync::atomic::Ordering::Relaxed).into();
                    assert_is_object(class, object);
                    assert_eq!(CLASS[class].size, CLASS[place].size);
                    // It is not in the cache any more.
                    live.push((class, object));
                }
                let objects: HashSet<usize> = live.iter().map(|(_, object)| *object).collect();
                assert_eq!(objects.len(), live.len(), "an object is given twice");
                let classes: HashSet<usize> = live.iter().map(|(class, _)| *class).collect();
                let cached = classes.into_iter().flat_map(|class| contents(caches, class));
                cached.for_each(|object| assert!(!objects.contains(&object)));
            }
            4..=6 => {
                let Some(from) = step.index(live.len()) else { continue };
                let to = (from + step.count(100)).min(live.len());
                for (turn, (class, object)) in live.drain(from..to).enumerate() {
                    // Looking at it takes long.
                    let before = (turn % 16 == 0).then(|| contents(caches, class));
                    // Without the work beside it, which may empty the cache again.
                    if !cache::push_short(class, object) {
                        cache::spill(class, object);
                    }
                    let Some(before) = before else { continue };
                    let after = contents(caches, class);
                    let (last, kept) = after.split_last().expect("it was put there");
                    assert_eq!(*last, object);
                    // All that was there, or of a full stack a part: the oldest or the newest goes.
                    assert!(before.starts_with(kept) || before.ends_with(kept));
                }
            }
            _ => match step.first % 8 {
                0 => {
                    cache::flush();
                    assert_eq!(contents(caches, place), []);
                }
                1..=3 => {
                    // What no thread touched between two looks goes.
                    clock::put_on(u64::from(step.first));
                    if caches == Caches::OfProcessors {
                        cpu_cache::tend();
                        let before = contents(caches, place);
                        assert!(before.ends_with(&contents(caches, place)));
                    }
                }
                _ => clock::put_on(u64::from(step.second % 8)),
            },
        }
        let bytes: usize = live.iter().map(|(class, _)| CLASS[*class].size as usize).sum();
        assert_eq!(census().live, bytes);
    }
    live.into_iter().for_each(|(class, object)| cache::push(class, object));
}
