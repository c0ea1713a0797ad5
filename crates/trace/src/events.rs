//! Events in the order in which they happened: the lanes merged by time.

use crate::content::{Block, Trace};
use crate::error::Error;
use spandrel_recorder::layout::BLOCK_HEADER_BYTES;
use spandrel_recorder::{Before, Event};

/// An event, its time and its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    /// The thread's number; from 1 in the order of their first events.
    pub thread: u32,
    /// What happened; never [`Event::Thread`].
    pub event: Event,
}

/// All events of a recording. After an error there are no more.
pub struct Events<'a> {
    lanes: Vec<Lane<'a>>,
    failed: bool,
}

struct Lane<'a> {
    bytes: &'a [u8],
    blocks: &'a [Block],
    /// The block that is being read.
    block: usize,
    at: usize,
    before: Before,
    thread: u32,
    next: Option<Happened>,
}

impl<'a> Events<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let lanes = trace.lanes.values().map(|blocks| Lane {
            bytes: &trace.bytes,
            blocks,
            block: 0,
            at: blocks.first().map_or(0, |block| block.events.start),
            before: Before::block(blocks.first().map_or(0, |block| block.began_ns)),
            thread: 0,
            next: None,
        });
        Self { lanes: lanes.collect(), failed: false }
    }

    fn take(&mut self) -> Result<Option<Happened>, Error> {
        let mut first: Option<&mut Lane<'_>> = None;
        for lane in &mut self.lanes {
            if lane.next.is_none() {
                lane.next = lane.read()?;
            }
            let earlier = match (&lane.next, &first) {
                (Some(next), Some(other)) => other.next.is_none_or(|other| next.ns < other.ns),
                (next, _) => next.is_some(),
            };
            if earlier {
                first = Some(lane);
            }
        }
        Ok(first.and_then(|lane| lane.next.take()))
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Happened, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let taken = self.take();
        self.failed = taken.is_err();
        taken.transpose()
    }
}

impl Lane<'_> {
    fn read(&mut self) -> Result<Option<Happened>, Error> {
        loop {
            let Some(block) = self.blocks.get(self.block) else { return Ok(None) };
            if self.at >= block.events.end {
                self.block += 1;
                self.thread = 0;
                if let Some(next) = self.blocks.get(self.block) {
                    if next.began_ns < self.before.ns {
                        let at = (next.events.start - BLOCK_HEADER_BYTES) as u64;
                        return Err(Error::at(at, "a block begins before the one before it ends"));
                    }
                    self.at = next.events.start;
                    self.before = Before::block(next.began_ns);
                }
                continue;
            }
            let bytes = self.bytes.get(self.at..block.events.end).unwrap_or(&[]);
            let fault = |why: &dyn std::fmt::Display| Error::at(self.at as u64, why.to_string());
            let (event, len) = self.before.decode(bytes).map_err(|why| fault(&why))?;
            self.at += len;
            match event {
                Event::Thread { number } => self.thread = number,
                event => {
                    return Ok(Some(Happened { ns: self.before.ns, thread: self.thread, event }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::tests::recorded;

    #[test]
    fn time_does_not_go_back() {
        let free = |address| Event::Free { address };
        let bytes = recorded(&[(1, &[&[(1, free(8)), (7, free(16))], &[(6, free(24))]])]);
        let trace = Trace::new(bytes).unwrap();
        let events: Vec<_> = trace.events().collect();
        assert_eq!(events.len(), 3);
        let error = events[2].as_ref().unwrap_err();
        assert_eq!(error.offset, 4096 + 65536, "{error}");
    }

    #[test]
    fn lanes_are_merged_by_time() {
        let free = |address| Event::Free { address };
        let bytes = recorded(&[
            (
                1,
                &[
                    &[(1, Event::Thread { number: 3 }), (1, free(8)), (7, free(16))],
                    &[(8, free(24))],
                ],
            ),
            (4, &[&[(2, free(32)), (7, free(40)), (100, free(48))]]),
        ]);
        let trace = Trace::new(bytes).unwrap();
        let events: Vec<_> = trace.events().map(Result::unwrap).collect();
        let order: Vec<_> = events
            .iter()
            .map(|happened| match happened.event {
                Event::Free { address } => (happened.ns, happened.thread, address),
                _ => unreachable!(),
            })
            .collect();
        // A thread is known within its block.
        let expected = [(1, 3, 8), (2, 0, 32), (7, 3, 16), (7, 0, 40), (8, 0, 24), (100, 0, 48)];
        assert_eq!(order, expected);
    }
}
