//! What was asked of the page heap, by spans instead of addresses: a source of operations for the
//! simulator.

use crate::content::Trace;
use crate::error::Error;
use crate::events::Events;
use spandrel_recorder::Event;
use spandrel_sim::{Operation, Operations};
use std::collections::HashMap;

/// Operations in a batch.
const BATCH: usize = 512;
const NS_PER_MS: u64 = 1_000_000;

/// The page heap's operations of a recording.
pub struct Spans<'a> {
    events: Events<'a>,
    /// Numbers of living spans, by their first pages.
    living: HashMap<u32, u32>,
    free_ids: Vec<u32>,
    next_id: u32,
    /// A birth that follows before the next event is read.
    next: Option<(u64, Operation)>,
    /// Ends of spans that were made before the recording, or unseen.
    pub unknown: u64,
}

impl<'a> Spans<'a> {
    /// The operations of a recording, from its beginning.
    pub fn new(trace: &'a Trace) -> Self {
        Self {
            events: trace.events(),
            living: HashMap::new(),
            free_ids: Vec::new(),
            next_id: 0,
            next: None,
            unknown: 0,
        }
    }

    /// The largest number of spans that have lived at once.
    pub fn most_ids(&self) -> u32 {
        self.next_id
    }

    fn end(&mut self, first: u32) -> Option<Operation> {
        let id = self.living.remove(&first)?;
        self.free_ids.push(id);
        Some(Operation::Delete { id })
    }

    fn tell(&mut self, ns: u64, event: &Event) -> Option<Operation> {
        match *event {
            Event::New { first, pages, align_log2, objects } => {
                let displaced = self.end(first);
                self.unknown += u64::from(displaced.is_some());
                let id = self.free_ids.pop().unwrap_or_else(|| {
                    self.next_id += 1;
                    self.next_id - 1
                });
                self.living.insert(first, id);
                let align = 1u32.checked_shl(align_log2.into()).unwrap_or(1);
                let new = Operation::New { id, pages, align, objects };
                if displaced.is_some() {
                    self.next = Some((ns, new));
                    displaced
                } else {
                    Some(new)
                }
            }
            Event::Delete { first } => {
                let end = self.end(first);
                self.unknown += u64::from(end.is_none());
                end
            }
            Event::Grow { first, pages } => {
                Some(Operation::Grow { id: *self.living.get(&first)?, pages })
            }
            Event::Release { pages } => Some(Operation::Release { pages }),
            _ => None,
        }
    }
}

impl Iterator for Spans<'_> {
    /// Nanoseconds since the recording began, and what was asked for then.
    type Item = Result<(u64, Operation), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(next) = self.next.take() {
            return Some(Ok(next));
        }
        loop {
            match self.events.next()? {
                Err(error) => return Some(Err(error)),
                Ok(happened) => {
                    if let Some(operation) = self.tell(happened.ns, &happened.event) {
                        return Some(Ok((happened.ns, operation)));
                    }
                }
            }
        }
    }
}

impl Operations for Spans<'_> {
    fn fill(&mut self, batch: &mut Vec<spandrel_sim::Event>) -> Result<(), spandrel_sim::Error> {
        batch.clear();
        for next in self.by_ref().take(BATCH) {
            let (ns, operation) = next.map_err(|why| spandrel_sim::Error::new(why.to_string()))?;
            batch.push(spandrel_sim::Event { at_ms: ns / NS_PER_MS, operation });
        }
        Ok(())
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.living.capacity() * size_of::<(u32, u32)>()
            + self.free_ids.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::tests::recorded;

    #[test]
    fn pages_become_spans() {
        let new = |first, pages| Event::New { first, pages, align_log2: 1, objects: 3 };
        let events = [
            (1, new(10, 2)),
            (2, new(20, 4)),
            (3, Event::Delete { first: 10 }),
            (4, Event::Grow { first: 20, pages: 9 }),
            (5, new(10, 1)),
            (6, Event::Delete { first: 77 }),
            (7, new(20, 5)),
            (8, Event::Release { pages: u32::MAX }),
        ];
        let trace = Trace::new(recorded(&[(0, &[&events])])).unwrap();
        let mut spans = Spans::new(&trace);
        let operations: Vec<_> = spans.by_ref().map(|next| next.unwrap()).collect();
        let born = |id, pages| Operation::New { id, pages, align: 2, objects: 3 };
        assert_eq!(
            operations,
            [
                (1, born(0, 2)),
                (2, born(1, 4)),
                (3, Operation::Delete { id: 0 }),
                (4, Operation::Grow { id: 1, pages: 9 }),
                (5, born(0, 1)),
                (7, Operation::Delete { id: 1 }),
                (7, born(1, 5)),
                (8, Operation::Release { pages: u32::MAX }),
            ]
        );
        assert_eq!((spans.unknown, spans.most_ids()), (2, 2));
    }

    #[test]
    fn the_simulator_is_given_all_of_it() {
        let new = |first| Event::New { first, pages: 1, align_log2: 0, objects: 1 };
        let events: Vec<_> = (0..1500).map(|n| (u64::from(n) * 1_000_000, new(n))).collect();
        let trace = Trace::new(recorded(&[(0, &[&events])])).unwrap();
        let (mut spans, mut batch, mut all) = (Spans::new(&trace), Vec::new(), Vec::new());
        loop {
            spans.fill(&mut batch).unwrap();
            if batch.is_empty() {
                break;
            }
            all.extend_from_slice(&batch);
        }
        assert_eq!((all.len(), all[1499].at_ms), (1500, 1499));
    }
}
