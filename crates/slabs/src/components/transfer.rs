//! Transfer caches: stacks whose top is taken and whose unwanted bottom is given back.

extern crate std;

use core::mem;
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use super::{Instruction, assert_is_object, census};
use crate::class::{CLASS, SHARDS};
use crate::transfer::{self, fetch, give};

const MOST: usize = 3000;

#[derive(Clone, Default)]
struct Stack {
    objects: Vec<usize>,
    least: usize,
}

impl Stack {
    fn take(&mut self, most: usize) -> Vec<usize> {
        let from = self.objects.len().saturating_sub(most);
        self.least = self.least.min(from);
        self.objects.split_off(from)
    }

    fn shrink(&mut self, by: usize) {
        self.objects.drain(..by);
        self.least = self.objects.len();
    }
}

pub(super) fn run(instructions: &[Instruction]) {
    let Some((begins, rest)) = instructions.split_first() else { return };
    let class = begins.class();
    let (room, size) = (transfer::slots(class), CLASS[class].size as usize);
    let mut live: Vec<usize> = Vec::new();
    let mut stacks = vec![Stack::default(); SHARDS];
    for step in rest {
        let shard = step.shard();
        match step.kind(8) {
            0..=3 if live.len() < MOST => {
                let mut into = vec![0; step.count(128)];
                let (count, from_spans) = fetch(shard, class, &mut into);
                let others = (0..SHARDS).filter(|other| *other != shard);
                let mut full = [shard].into_iter().chain(others);
                let from = full.find(|shard| !stacks[*shard].objects.is_empty());
                assert!(count > 0);
                match from {
                    // The shard's own spans come before others' stacks.
                    Some(from) if from == shard || !from_spans => {
                        assert_eq!(into[..count], stacks[from].take(into.len()));
                        assert!(!from_spans);
                    }
                    _ => assert!(from_spans),
                }
                live.extend(&into[..count]);
                let stacked = stacks.iter().flat_map(|stack| &stack.objects);
                let all: Vec<usize> = live.iter().chain(stacked).copied().collect();
                assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
                live.iter().for_each(|object| assert_is_object(class, *object));
            }
            4..=6 => {
                let objects = step.choose(&mut live, 1000);
                give(shard, class, &objects);
                let stack = &mut stacks[shard].objects;
                let kept = (room - stack.len()).min(objects.len());
                stack.extend(&objects[..kept]);
            }
            7 if step.first % 4 == 0 => {
                transfer::flush();
                stacks.iter_mut().for_each(|stack| stack.shrink(stack.objects.len()));
            }
            7 if step.first % 4 == 1 => {
                let left = transfer::tend();
                for stack in &mut stacks {
                    let least = mem::take(&mut stack.least);
                    stack.shrink(least);
                }
                assert_eq!(left, stacks.iter().any(|stack| !stack.objects.is_empty()));
            }
            _ => {}
        }
        let cached = stacks.iter().map(|stack| stack.objects.len()).sum::<usize>() * size;
        let census = census();
        assert_eq!((census.cached, census.live), (cached, live.len() * size));
        for (shard, stack) in stacks.iter().enumerate() {
            assert_eq!(transfer::is_full(shard, class), stack.objects.len() == room);
        }
    }
    crate::central::give(class, &live);
}
