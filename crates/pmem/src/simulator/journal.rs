//! What was done to a medium, in order.

use core::ops::Range;
use std::prelude::v1::*;

use crate::line::{LINE_BYTES, WORD_BYTES};

/// What becomes durable as a whole, or torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A cache line, which may be torn between any two words.
    Line,
    /// A sector of a disk, which is not torn.
    Sector,
    /// A sector that may be torn in its middle.
    TornSector,
}

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

impl Unit {
    /// Its bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Line => LINE_BYTES,
            Self::Sector | Self::TornSector => SECTOR_BYTES,
        }
    }

    /// The bytes that are never torn.
    fn whole(self) -> usize {
        match self {
            Self::Line => WORD_BYTES,
            Self::Sector => SECTOR_BYTES,
            Self::TornSector => SECTOR_BYTES / 2,
        }
    }

    /// The numbers of those that bytes lie in.
    pub(super) fn over(self, at: usize, len: usize) -> Range<usize> {
        let last = len.checked_sub(1).map(|last| at + last);
        last.map_or(0..0, |last| at / self.bytes()..last / self.bytes() + 1)
    }
}

/// One thing that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were stored that lie in one unit: all of them, or what a longer store has there.
    Store {
        /// Where they begin.
        at: usize,
        /// What was stored.
        bytes: Box<[u8]>,
    },
    /// A unit was asked to be written back, by its number.
    WriteBack(usize),
    /// What was written back is durable.
    Fence,
    /// The workload says how far it is.
    Note(u64),
}

/// A medium's beginning, and all that was done to it.
#[derive(Clone, Debug)]
pub struct Journal {
    /// What becomes durable as a whole.
    pub(super) unit: Unit,
    /// The first image, all of which is durable.
    pub(super) beginning: Vec<u8>,
    /// What was done, in order.
    pub(super) events: Vec<Event>,
}

impl Journal {
    /// Nothing was done yet.
    pub fn new(unit: Unit, beginning: Vec<u8>) -> Self {
        Self { unit, beginning, events: Vec::new() }
    }

    /// What was done.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Notes a store of any length, unit by unit.
    ///
    /// # Panics
    /// It lies beyond the end.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.beginning.len(), "a store beyond the end");
        let unit = self.unit.bytes();
        for number in self.unit.over(at, bytes.len()) {
            let (from, to) = (at.max(number * unit), (at + bytes.len()).min((number + 1) * unit));
            let bytes = bytes[from - at..to - at].into();
            self.events.push(Event::Store { at: from, bytes });
        }
    }

    /// Notes that the units of bytes were asked to be written back.
    pub fn write_back(&mut self, at: usize, len: usize) {
        self.events.extend(self.unit.over(at, len).map(Event::WriteBack));
    }

    /// Notes a fence.
    pub fn fence(&mut self) {
        self.events.push(Event::Fence);
    }

    /// Notes how far the workload is, in its own numbers: an image's [`super::Point`] has all notes before it.
    pub fn note(&mut self, number: u64) {
        self.events.push(Event::Note(number));
    }

    /// How many units were asked to be written back, and how many fences there were.
    pub fn costs(&self) -> (usize, usize) {
        let count = |is: fn(&Event) -> bool| self.events.iter().filter(|event| is(event)).count();
        (
            count(|event| matches!(event, Event::WriteBack(_))),
            count(|event| matches!(event, Event::Fence)),
        )
    }
}

/// The ways in which a store into one unit may be torn: from the left, then from the right; the last has all.
pub(super) fn cuts(unit: Unit, at: usize, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let (end, whole) = (at + bytes.len(), unit.whole());
    let first = (at / whole + 1) * whole;
    let inner = move || (first..end).step_by(whole);
    let left = inner().map(|to| (at, &bytes[..to - at]));
    let right = inner().map(|from| (from, &bytes[from - at..]));
    left.chain(right).chain([(at, bytes)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stores_are_noted_line_by_line() {
        let mut journal = Journal::new(Unit::Line, vec![0; 256]);
        journal.store(60, &[1; 70]);
        journal.write_back(60, 70);
        journal.fence();
        let of = |event: &Event| match event {
            Event::Store { at, bytes } => (*at, bytes.len()),
            Event::WriteBack(line) => (*line, 0),
            _ => (usize::MAX, 0),
        };
        let seen: Vec<_> = journal.events().iter().map(of).collect();
        assert_eq!(seen, [(60, 4), (64, 64), (128, 2), (0, 0), (1, 0), (2, 0), (usize::MAX, 0)]);
        assert_eq!(journal.costs(), (3, 1));
    }

    #[test]
    fn a_word_is_not_cut_and_others_are_between_words() {
        assert_eq!(cuts(Unit::Line, 8, &[1; 8]), [(8, &[1u8; 8][..])]);
        let bytes: Vec<u8> = (0..20).collect();
        let seen: Vec<_> =
            cuts(Unit::Line, 4, &bytes).into_iter().map(|(at, part)| (at, part.len())).collect();
        assert_eq!(seen, [(4, 4), (4, 12), (8, 16), (16, 8), (4, 20)]);
        assert_eq!(cuts(Unit::Sector, 0, &[1; 512]).len(), 1);
        assert_eq!(cuts(Unit::TornSector, 0, &[1; 512]).len(), 3);
    }
}
