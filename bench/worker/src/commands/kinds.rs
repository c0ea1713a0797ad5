//! The kinds of commands: what ordinary programs do with the standard library's types.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hint::black_box;
use std::ops::Range;

use crate::clock::mixed;

/// What hears of the stores that a command names.
pub trait Note {
    /// The command stores `bytes` bytes at an address, now or next.
    fn note(&mut self, at: *const u8, bytes: usize);
}

/// Nothing hears of them: the command is the program's own code alone.
pub struct Unnoted;

impl Note for Unnoted {
    #[inline(always)]
    fn note(&mut self, _: *const u8, _: usize) {}
}

/// A state, and a command that changes it.
pub trait Command: Sized {
    /// Part of the keys that the commands of a slice of the clock add at most; 0: they add none.
    const GROWTH: f64 = 0.0;

    /// A state that is to have that number of keys, and has none yet.
    fn new(keys: u64) -> Self;

    /// Adds the keys of these numbers.
    fn fill(&mut self, part: Range<u64>);

    /// The command. `number` is any number, `from` are bytes for copies.
    fn run<N: Note>(&mut self, number: u64, from: &[u8], note: &mut N);

    /// Where the state lies. `None`: anywhere in the heap.
    fn span(&self) -> Option<Range<usize>>;
}

/// Updates of a hash table.
pub struct Table {
    map: HashMap<u64, [u64; 4]>,
    keys: u64,
}

impl Table {
    /// Reads a value.
    #[inline]
    pub fn look(&self, number: u64) -> u64 {
        let key = number % self.keys;
        self.map.get(&key).map_or(0, |value| value[(key % 4) as usize])
    }
}

impl Command for Table {
    fn new(keys: u64) -> Self {
        Self { map: HashMap::with_capacity(keys as usize), keys }
    }

    fn fill(&mut self, part: Range<u64>) {
        self.map.extend(part.map(|key| (key, [key; 4])));
    }

    #[inline]
    fn run<N: Note>(&mut self, number: u64, _: &[u8], note: &mut N) {
        let key = number % self.keys;
        let value = &mut self.map.entry(key).or_default()[(key % 4) as usize];
        note.note((&raw const *value).cast(), size_of::<u64>());
        *value += 1;
    }

    fn span(&self) -> Option<Range<usize>> {
        let values = self.map.values().map(|value| &raw const *value as usize);
        let (from, to) = values.fold((usize::MAX, 0), |(from, to), at| {
            (from.min(at), to.max(at + size_of::<[u64; 4]>()))
        });
        Some(from..to)
    }
}

/// Insertions into a B-tree.
pub struct Tree {
    map: BTreeMap<u64, u64>,
}

impl Command for Tree {
    const GROWTH: f64 = 0.02;

    fn new(_: u64) -> Self {
        Self { map: BTreeMap::new() }
    }

    fn fill(&mut self, part: Range<u64>) {
        part.for_each(|number| _ = self.map.insert(mixed(number), number));
    }

    #[inline]
    fn run<N: Note>(&mut self, number: u64, _: &[u8], _: &mut N) {
        self.map.insert(number, number);
    }

    fn span(&self) -> Option<Range<usize>> {
        None
    }
}

/// Copies of that number of bytes to places of a large array.
pub struct Copies<const BYTES: usize> {
    room: Vec<u8>,
    keys: u64,
}

impl<const BYTES: usize> Copies<BYTES> {
    /// Bytes of the array for each key: about those of a hash table's.
    const OF_KEY: usize = 64;
    /// Places at least.
    const PLACES: usize = 16;

    /// Bytes of the array.
    pub fn room(keys: u64) -> usize {
        (keys as usize * Self::OF_KEY).max(Self::PLACES * BYTES)
    }

    /// The place of a number among `bytes` bytes, and the part of the source.
    #[inline]
    pub fn of(number: u64, bytes: usize, from: &[u8]) -> (usize, &[u8]) {
        let place = number as usize % (bytes / BYTES) * BYTES;
        let start = (number >> 32) as usize % 64 * 64;
        (place, &from[start..start + BYTES])
    }
}

impl<const BYTES: usize> Command for Copies<BYTES> {
    fn new(keys: u64) -> Self {
        Self { room: Vec::with_capacity(Self::room(keys)), keys }
    }

    fn fill(&mut self, part: Range<u64>) {
        let to = Self::room(self.keys) as u128 * u128::from(part.end) / u128::from(self.keys);
        self.room.resize(to as usize, 1);
    }

    #[inline]
    fn run<N: Note>(&mut self, number: u64, from: &[u8], note: &mut N) {
        let (place, from) = Self::of(number, self.room.len(), from);
        let to = &mut self.room[place..place + BYTES];
        note.note(to.as_ptr(), BYTES);
        to.copy_from_slice(from);
    }

    fn span(&self) -> Option<Range<usize>> {
        let from = self.room.as_ptr() as usize;
        Some(from..from + self.room.len())
    }
}

/// Commands that do nothing: what a batch takes by itself.
pub struct Nothing {
    number: Box<u64>,
}

impl Command for Nothing {
    fn new(_: u64) -> Self {
        Self { number: Box::new(0) }
    }

    fn fill(&mut self, _: Range<u64>) {}

    #[inline]
    fn run<N: Note>(&mut self, number: u64, _: &[u8], _: &mut N) {
        black_box((number, &self.number));
    }

    fn span(&self) -> Option<Range<usize>> {
        None
    }
}

/// Commands of much code: texts, sorting, numbers to texts and back.
pub struct Text {
    texts: BTreeMap<String, Vec<String>>,
}

impl Command for Text {
    fn new(_: u64) -> Self {
        Self { texts: BTreeMap::new() }
    }

    fn fill(&mut self, _: Range<u64>) {}

    fn run<N: Note>(&mut self, number: u64, _: &[u8], _: &mut N) {
        let number = number % 1000;
        let mut words: Vec<String> = (0..40)
            .map(|part| {
                format!("{:>9.3e} {:?} {:#x}", part as f64 / 7.0, Some(part * number), part)
            })
            .collect();
        words.sort_by_key(|word| word.len());
        words.sort_unstable();
        let mut text = words.join(" ").to_uppercase();
        let read: f64 = text.split(' ').filter_map(|word| word.parse::<f64>().ok()).sum();
        _ = write!(text, "{read:?}");
        let mut counts: HashMap<char, usize> = HashMap::new();
        text.chars().for_each(|letter| *counts.entry(letter).or_default() += 1);
        words.push(format!("{counts:?}"));
        words.dedup();
        self.texts.insert(format!("{number:08}"), words);
        let first = self.texts.keys().next().cloned().filter(|_| self.texts.len() > 100);
        first.into_iter().for_each(|first| _ = self.texts.remove(&first));
    }

    fn span(&self) -> Option<Range<usize>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noted(Vec<(usize, usize)>);

    impl Note for Noted {
        fn note(&mut self, at: *const u8, bytes: usize) {
            self.0.push((at as usize, bytes));
        }
    }

    fn filled<C: Command>() -> C {
        let mut command = C::new(1000);
        (0..1000).step_by(100).for_each(|from| command.fill(from..from + 100));
        command
    }

    #[test]
    fn stores_lie_in_the_span() {
        fn check<C: Command>(stores: usize) {
            let (mut command, mut noted, from) = (filled::<C>(), Noted(vec![]), crate::source());
            let span = command.span().unwrap();
            (0..500).for_each(|number| command.run(mixed(number), &from, &mut noted));
            assert_eq!(noted.0.len(), 500);
            assert!(noted.0.iter().all(|(at, bytes)| span.contains(at) && at + bytes <= span.end));
            assert!(noted.0.iter().all(|(_, bytes)| *bytes == stores));
        }
        check::<Table>(8);
        check::<Copies<4096>>(4096);
        check::<Copies<100_000>>(100_000);
    }

    #[test]
    fn commands_change_their_state() {
        let (mut table, mut tree) = (filled::<Table>(), filled::<Tree>());
        let (mut text, from) = (filled::<Text>(), crate::source());
        table.run(1007, &from, &mut Unnoted);
        assert_eq!((table.look(7), table.look(8), table.map.len()), (8, 8, 1000));
        (1..301).for_each(|number| tree.run(number, &from, &mut Unnoted));
        assert_eq!(tree.map.len(), 1300);
        (0..300).for_each(|number| text.run(number, &from, &mut Unnoted));
        assert_eq!(text.texts.len(), 100);
        let mut copies = filled::<Copies<4096>>();
        copies.run(0, &from, &mut Unnoted);
        assert_eq!((&copies.room[..4096], copies.room[4096]), (&from[..4096], 1));
    }
}
