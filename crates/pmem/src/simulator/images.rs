//! The images that a power failure may leave, moment by moment.

use std::collections::BTreeMap;
use std::prelude::v1::*;

use super::journal::{Event, Journal, cuts};

/// How many images are shown of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// With this many lines (or sectors) of which more than one content is possible, or fewer, all images are shown...
    pub lines: usize,
    /// ... unless there are more than this many...
    pub most: usize,
    /// ... and else this many that are drawn, beside that with all stores and that with none.
    pub drawn: usize,
    /// What the drawn ones depend on.
    pub seed: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lines: 12, most: 1 << 16, drawn: 64, seed: 1 }
    }
}

/// Where in the journal a power failure was.
#[derive(Clone, Debug)]
pub struct Point<'a> {
    /// The number of events before it.
    pub event: usize,
    /// All notes before it.
    pub notes: &'a [u64],
}

/// How many images were shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Moments that were looked at.
    pub points: usize,
    /// Those of them of which every image was shown.
    pub exhaustive: usize,
    /// Images in all.
    pub images: usize,
}

/// An image that should not be, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is wrong with it.
    pub why: String,
    /// How many events were before the failure.
    pub event: usize,
    /// The image.
    pub image: Vec<u8>,
    /// The lines that were not certain: their numbers, and which of their possible contents they had, of how many.
    pub lines: Vec<(usize, usize, usize)>,
}

impl core::fmt::Display for Found {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (failure before event {};", self.why, self.event)?;
        for (line, which, of) in &self.lines {
            write!(f, " line {line}: {} of {}", which + 1, of)?;
        }
        f.write_str(")")
    }
}

/// The stores to a line that are not certain.
#[derive(Default)]
struct Pending {
    stores: Vec<usize>,
    /// How many of them have a write-back on its way.
    written_back: usize,
}

/// The journal up to some event.
struct Replay<'a> {
    journal: &'a Journal,
    certain: Vec<u8>,
    pending: BTreeMap<usize, Pending>,
    notes: Vec<u64>,
}

/// What a line may hold.
struct Line {
    number: usize,
    contents: Vec<Vec<u8>>,
}

impl Journal {
    /// Shows every image, within the bounds, that a power failure at any moment may have left. Ends with the first that
    /// `see` finds something wrong with.
    ///
    /// # Errors
    /// That image.
    pub fn images(
        &self,
        bounds: &Bounds,
        mut see: impl FnMut(&[u8], &Point<'_>) -> Result<(), String>,
    ) -> Result<Outcome, Box<Found>> {
        let mut replay = Replay {
            journal: self,
            certain: self.beginning.clone(),
            pending: BTreeMap::new(),
            notes: Vec::new(),
        };
        let mut outcome = Outcome::default();
        let mut is_new = true;
        for (number, event) in self.events.iter().enumerate() {
            match event {
                Event::Store { at, .. } => {
                    replay.pending.entry(at / self.unit.bytes()).or_default().stores.push(number);
                    is_new = true;
                }
                Event::WriteBack(line) => {
                    if let Some(line) = replay.pending.get_mut(line) {
                        line.written_back = line.stores.len();
                    }
                }
                Event::Fence => {
                    if is_new {
                        replay.show(number, bounds, &mut outcome, &mut see)?;
                    }
                    is_new = replay.fence();
                }
                Event::Note(note) => {
                    replay.notes.push(*note);
                    is_new = true;
                }
            }
        }
        replay.show(self.events.len(), bounds, &mut outcome, &mut see)?;
        Ok(outcome)
    }

    /// The image with all stores: what the medium holds at the end.
    pub fn last(&self) -> Vec<u8> {
        let mut image = self.beginning.clone();
        self.events.iter().for_each(|event| apply(&mut image, event));
        image
    }
}

fn apply(image: &mut [u8], event: &Event) {
    if let Event::Store { at, bytes } = event {
        image[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Replay<'_> {
    /// What was written back becomes certain; whether anything did.
    fn fence(&mut self) -> bool {
        let mut any = false;
        for line in self.pending.values_mut() {
            for number in line.stores.drain(..line.written_back) {
                apply(&mut self.certain, &self.journal.events[number]);
                any = true;
            }
            line.written_back = 0;
        }
        self.pending.retain(|_, line| !line.stores.is_empty());
        any
    }

    /// What each line may hold, of those that may hold more than one thing.
    fn lines(&self) -> Vec<Line> {
        let (mut lines, unit) = (Vec::new(), self.journal.unit);
        for (number, pending) in &self.pending {
            let start = number * unit.bytes();
            let end = (start + unit.bytes()).min(self.certain.len());
            let mut content = self.certain[start..end].to_vec();
            let mut contents = vec![content.clone()];
            for store in &pending.stores {
                let Event::Store { at, bytes } = &self.journal.events[*store] else { continue };
                let before = content.clone();
                for (at, bytes) in cuts(unit, *at, bytes) {
                    content.copy_from_slice(&before);
                    content[at - start..at - start + bytes.len()].copy_from_slice(bytes);
                    if !contents.contains(&content) {
                        contents.push(content.clone());
                    }
                }
            }
            if contents.len() > 1 {
                lines.push(Line { number: *number, contents });
            }
        }
        lines
    }

    /// Shows the images of this moment.
    fn show(
        &self,
        event: usize,
        bounds: &Bounds,
        outcome: &mut Outcome,
        see: &mut impl FnMut(&[u8], &Point<'_>) -> Result<(), String>,
    ) -> Result<(), Box<Found>> {
        let lines = self.lines();
        let all = lines.iter().try_fold(1usize, |all, line| all.checked_mul(line.contents.len()));
        let all = all.filter(|all| lines.len() <= bounds.lines && *all <= bounds.most);
        outcome.points += 1;
        outcome.exhaustive += usize::from(all.is_some());
        let point = Point { event, notes: &self.notes };
        let mut image = self.certain.clone();
        let mut drawn = Drawn::new(bounds.seed ^ event as u64);
        let count = all.unwrap_or(bounds.drawn + 2);
        for number in 0..count {
            let mut rest = number;
            // Two thirds of the drawn ones have all stores on one side of some line and none on the other: what a file system
            // that writes in order leaves, and what lines that are drawn one by one hardly ever are.
            let split = drawn.below(lines.len().max(1));
            let mut choose = |at: usize, of: usize| match (all, number) {
                (Some(_), _) => {
                    let which = rest % of;
                    rest /= of;
                    which
                }
                (None, 0) => 0,
                (None, 1) => of - 1,
                (None, _) if number % 3 == 0 => drawn.below(of),
                (None, _) => {
                    if (at <= split) == (number % 3 == 1) {
                        of - 1
                    } else {
                        0
                    }
                }
            };
            let of = |(at, line): (usize, &Line)| choose(at, line.contents.len());
            let chosen: Vec<usize> = lines.iter().enumerate().map(of).collect();
            for (line, which) in lines.iter().zip(&chosen) {
                let (start, content) =
                    (line.number * self.journal.unit.bytes(), &line.contents[*which]);
                image[start..start + content.len()].copy_from_slice(content);
            }
            outcome.images += 1;
            see(&image, &point).map_err(|why| {
                let of =
                    |(line, which): (&Line, &usize)| (line.number, *which, line.contents.len());
                let lines = lines.iter().zip(&chosen).map(of).collect();
                Box::new(Found { why, event, image: image.clone(), lines })
            })?;
        }
        Ok(())
    }
}

/// Numbers that a seed decides: SplitMix64.
#[derive(Clone, Copy, Debug)]
pub struct Drawn(u64);

impl Drawn {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, from 0 to `end`, which is not among them and not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn ^ drawn >> 31) as usize % end
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::Unit;
    use super::*;
    use std::collections::BTreeSet;

    fn words(image: &[u8], at: &[usize]) -> Vec<u64> {
        at.iter().map(|at| u64::from_le_bytes(image[*at..*at + 8].try_into().unwrap())).collect()
    }

    fn seen(journal: &Journal, at: &[usize]) -> BTreeSet<Vec<u64>> {
        let mut all = BTreeSet::new();
        let see = |image: &[u8], _: &Point<'_>| {
            all.insert(words(image, at));
            Ok(())
        };
        journal.images(&Bounds::default(), see).unwrap();
        all
    }

    fn store(journal: &mut Journal, at: usize, word: u64) {
        journal.store(at, &word.to_le_bytes());
    }

    #[test]
    fn stores_to_one_line_are_a_prefix_and_lines_are_independent() {
        let mut journal = Journal::new(Unit::Line, vec![0; 256]);
        store(&mut journal, 0, 1);
        store(&mut journal, 8, 2);
        store(&mut journal, 64, 3);
        let expected: BTreeSet<Vec<u64>> = [[0, 0], [1, 0], [1, 2]]
            .into_iter()
            .flat_map(|[one, two]| [vec![one, two, 0], vec![one, two, 3]])
            .collect();
        assert_eq!(seen(&journal, &[0, 8, 64]), expected);
    }

    #[test]
    fn only_what_was_written_back_before_a_fence_is_certain() {
        let mut journal = Journal::new(Unit::Line, vec![0; 256]);
        store(&mut journal, 0, 1);
        journal.write_back(0, 8);
        // After the write-back: not part of it.
        store(&mut journal, 8, 2);
        store(&mut journal, 64, 3);
        journal.fence();
        store(&mut journal, 128, 4);
        let all = seen(&journal, &[0, 8, 64, 128]);
        assert!(all.iter().all(|words| words[3] == 0 || words[0] == 1), "{all:?}");
        assert!(all.contains(&vec![1, 0, 0, 4]) && all.contains(&vec![0, 0, 3, 0]));
        assert!(all.contains(&vec![1, 2, 3, 4]) && !all.contains(&vec![0, 2, 0, 0]));
    }

    #[test]
    fn a_long_store_is_cut_from_either_side() {
        let mut journal = Journal::new(Unit::Line, vec![0; 64]);
        journal.store(0, &[1; 24]);
        let one = u64::from_le_bytes([1; 8]);
        let all = seen(&journal, &[0, 8, 16]);
        let expected = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]];
        let expected = expected.map(|words| words.map(|word| word * one).to_vec());
        assert_eq!(all, expected.into_iter().collect());
    }

    #[test]
    fn what_is_wrong_is_found_with_its_image() {
        let mut journal = Journal::new(Unit::Line, vec![0; 256]);
        store(&mut journal, 0, 1);
        journal.note(7);
        store(&mut journal, 64, 1);
        let see = |image: &[u8], point: &Point<'_>| {
            assert_eq!(point.notes, [7]);
            if words(image, &[0, 64]) == [0, 1] {
                Err("the second without the first".into())
            } else {
                Ok(())
            }
        };
        let found = journal.images(&Bounds::default(), see).unwrap_err();
        assert_eq!(words(&found.image, &[0, 64]), [0, 1]);
        assert_eq!((found.event, found.lines.as_slice()), (3, &[(0, 0, 2), (1, 1, 2)][..]));
        let said = found.to_string();
        assert!(
            said.contains("the second without the first") && said.contains("line 1: 2 of 2"),
            "{said}"
        );
    }

    #[test]
    fn beyond_the_bounds_images_are_drawn() {
        let mut journal = Journal::new(Unit::Line, vec![0; 64 * 20]);
        (0..20).for_each(|line| store(&mut journal, line * 64, 1));
        let mut all = BTreeSet::new();
        let at: Vec<usize> = (0..20).map(|line| line * 64).collect();
        let see = |image: &[u8], _: &Point<'_>| {
            all.insert(words(image, &at));
            Ok(())
        };
        let outcome = journal.images(&Bounds::default(), see).unwrap();
        assert_eq!(outcome, Outcome { points: 1, exhaustive: 0, images: 66 });
        assert!(all.len() > 35 && all.contains(&vec![0; 20]) && all.contains(&vec![1; 20]));
        assert_eq!(words(&journal.last(), &at), vec![1; 20]);
    }

    #[test]
    fn twelve_lines_are_all_of_their_images() {
        let mut journal = Journal::new(Unit::Line, vec![0; 64 * 12]);
        (0..12).for_each(|line| store(&mut journal, line * 64, 1));
        let at: Vec<usize> = (0..12).map(|line| line * 64).collect();
        assert_eq!(seen(&journal, &at).len(), 1 << 12);
    }
}
