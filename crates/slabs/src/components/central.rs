//! Central lists: objects come from the fullest spans, no object twice, and empty spans leave or are kept.

extern crate std;

use core::sync::atomic::Ordering::Relaxed;
use std::collections::{BTreeMap, HashSet};
use std::vec;
use std::vec::Vec;

use super::{Instruction, assert_is_object, census};
use crate::central;
use crate::class::CLASS;
use crate::kept;
use crate::map::{self, Page};
use crate::refuse::clock;
use crate::span::Span;

const MOST: usize = 3000;

/// A span that was seen: objects in use, and the shard that took some last.
#[derive(Clone, Copy, Default)]
struct Seen {
    used: usize,
    shard: usize,
}

struct Model {
    class: usize,
    live: Vec<usize>,
    /// By first pages.
    spans: BTreeMap<usize, Seen>,
}

impl Model {
    fn first_page(&self, object: usize) -> usize {
        Span::covering(map::page_of(object), self.class).first().0
    }

    fn objects(&self) -> usize {
        CLASS[self.class].objects.into()
    }

    /// Its place among those with free objects: the fuller the higher, an empty one lowest.
    fn rank(&self, seen: Seen) -> usize {
        if seen.used == 0 { 0 } else { 1 + CLASS[self.class].fullness_of(seen.used) }
    }

    fn fullest(&self, is: impl Fn(&Seen) -> bool) -> Option<usize> {
        let with_room = self.spans.values().filter(|seen| seen.used < self.objects() && is(seen));
        with_room.map(|seen| self.rank(*seen)).max()
    }

    fn fetched(&mut self, shard: usize, objects: &[usize], fullest: Option<usize>) {
        for (turn, object) in objects.iter().enumerate() {
            assert_is_object(self.class, *object);
            let page = self.first_page(*object);
            let rank = self.spans.get(&page).map(|seen| self.rank(*seen));
            if turn == 0 {
                assert_eq!(rank, fullest, "not the fullest, or a new one without need");
            }
            let seen = self.spans.entry(page).or_default();
            *seen = Seen { used: seen.used + 1, shard };
        }
        self.live.extend(objects);
        let all: HashSet<usize> = self.live.iter().copied().collect();
        assert_eq!(all.len(), self.live.len(), "an object is given twice");
    }

    fn given(&mut self, objects: &[usize]) {
        for object in objects {
            let page = self.first_page(*object);
            self.spans.entry(page).or_default().used -= 1;
        }
    }

    /// Empty spans that are not there any more.
    fn forget(&mut self) {
        let class = self.class;
        let is_there = |first: usize| usize::from(Page(first).class().load(Relaxed)) == class;
        self.spans.retain(|first, seen| seen.used > 0 || is_there(*first));
    }

    fn compare(&self) {
        let (census, size) = (census(), CLASS[self.class].size as usize);
        let used: usize = self.spans.values().map(|seen| seen.used).sum();
        assert_eq!((used, census.live), (self.live.len(), self.live.len() * size));
        assert_eq!(census.spans as usize, self.spans.len());
        assert_eq!(census.free, (self.spans.len() * self.objects() - used) * size);
        assert_eq!(census.span_bytes, census.handed_out);
        for (first, seen) in &self.spans {
            let span = Span::at(Page(*first), self.class);
            assert_eq!((span.used(), span.shard()), (seen.used, seen.shard));
        }
    }
}

pub(super) fn run(instructions: &[Instruction]) {
    let Some((begins, rest)) = instructions.split_first() else { return };
    let class = begins.class();
    let mut model = Model { class, live: Vec::new(), spans: BTreeMap::new() };
    for step in rest {
        let shard = step.shard();
        match step.kind(8) {
            0..=3 if model.live.len() < MOST => {
                let mut into = vec![0; step.count(128)];
                let own = step.kind(8) == 0;
                let fullest = model.fullest(|seen| !own || seen.shard == shard);
                let count = if own {
                    central::fetch_own(shard, class, &mut into)
                } else {
                    central::fetch(shard, class, &mut into)
                };
                assert!(count > 0 || own && (fullest.is_none() || !kept::is_small_heap()));
                model.fetched(shard, &into[..count], fullest);
            }
            4..=5 => {
                let objects = step.choose(&mut model.live, 128);
                model.given(&objects);
                central::give(class, &objects);
            }
            6 => {
                clock::put_on(u64::from(step.first % 50));
                central::tend();
            }
            7 if step.first % 4 == 0 => {
                central::flush();
                assert_eq!(kept::bytes(), 0);
            }
            _ => {}
        }
        model.forget();
        model.compare();
    }
    central::give(class, &model.live);
}
