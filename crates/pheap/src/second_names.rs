//! Roots that have one name: a name leads to the first of them, so that the others are not found.

use core::fmt::{self, Write};

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::roots::NAME_BYTES;
use crate::shared::Core;
use crate::superblock::ROOT_COUNT;

/// The finding of a root that has the name of another one.
pub const SECOND_NAME: &str = "the name of a root, which another root has as well";
/// What a repair says of such a root.
pub const RENAMED: &str = "the name of a root, which another root has as well, and which is another one now ('spandrel heap roots')";

/// A name that is being written.
struct Buffer {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Buffer {
    /// The beginning of a name, as much as leaves room for an ending.
    fn new(name: &str, number: usize) -> Option<Self> {
        let mut ending = Self { bytes: [0; NAME_BYTES], len: 0 };
        write!(ending, "~{number}").ok()?;
        let fits = |len: &usize| name.is_char_boundary(*len) && len + ending.len <= NAME_BYTES;
        let len = (0..=name.len()).rev().find(fits)?;
        let mut buffer = Self { bytes: [0; NAME_BYTES], len: 0 };
        buffer.write_str(name.get(..len)?).ok()?;
        buffer.write_str(ending.text()).ok()?;
        Some(buffer)
    }

    fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or(&[]);
        core::str::from_utf8(bytes).unwrap_or("")
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.len + text.len();
        self.bytes.get_mut(self.len..to).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = to;
        Ok(())
    }
}

impl<M: Medium> Core<M> {
    fn has_name(&self, index: usize, name: &str) -> bool {
        self.root_name(index).is_some_and(|found| found.text() == name)
    }

    /// Whether a root with a lower number has the name of this one.
    pub fn is_second_of_its_name(&self, index: usize) -> bool {
        let name = self.root_name(index);
        name.is_some_and(|name| (0..index).any(|first| self.has_name(first, name.text())))
    }

    /// Gives a root that is the second of its name a name that no other root has: the old one with a number behind it.
    ///
    /// # Errors
    /// [`Error::RootName`]: the root has no name.
    pub fn rename_second(&self, index: usize) -> Result<(), Error> {
        let name = self.root_name(index).ok_or(Error::RootName)?;
        let is_free = |text: &str| !(0..ROOT_COUNT).any(|index| self.has_name(index, text));
        let mut names = (2..ROOT_COUNT + 2).filter_map(|number| Buffer::new(name.text(), number));
        let new = names.find(|new| is_free(new.text())).ok_or(Error::RootName)?;
        self.name_root(index, new.text(), name.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::Vector;
    use crate::superblock::NAMES;
    use crate::{Finding, Heap, Kind, check, repair};
    use spandrel_pmem::simulator::Memory;
    use std::prelude::v1::*;

    /// A heap with three roots of one name of 40 bytes, as earlier programs could make it.
    fn with_one_name_thrice(name: &str, closes: bool) -> Memory {
        let memory = Memory::new(crate::layout::LEAST_BYTES + (20 << 16));
        let heap = Heap::create(&memory, [7, 8], 0, 0).unwrap();
        for (number, other) in ["other", "third", name].into_iter().enumerate() {
            Vector::<u64, _>::open(&heap, other).unwrap().push(number as u64).unwrap();
        }
        let layout = heap.core().root_name(511).unwrap().layout;
        for index in [510, 511] {
            heap.core().name_root(index, name, layout).unwrap();
        }
        if closes {
            heap.close().unwrap();
        } else {
            heap.abandon();
        }
        memory
    }

    #[test]
    fn roots_of_one_name_are_found_and_a_repair_leaves_each_with_a_name() {
        for (name, second) in [("one", "one~2"), (&"\u{e4}".repeat(20), &"\u{e4}".repeat(19))] {
            for closes in [true, false] {
                let memory = with_one_name_thrice(name, closes);
                let mut found = Vec::new();
                let survey = check(&memory, &[], &mut |finding| found.push(*finding)).unwrap();
                let twice = |index: usize| Finding {
                    objects: None,
                    at: (NAMES + index * 64) as u64,
                    kind: Kind::Damage,
                    what: SECOND_NAME,
                };
                assert_eq!((found, survey.damaged), (vec![twice(510), twice(511)], 2));
                let done = repair(&memory, &mut |_| ()).unwrap();
                assert_eq!((done.exact, done.cleared, done.is_closed), (2, 0, closes));
                let survey = check(&memory, &[], &mut |found| std::panic!("{found}")).unwrap();
                assert_eq!((survey.damaged, survey.roots), (0, 3));
                let (heap, opened) = Heap::open(&memory, 0, Some(&[])).unwrap();
                assert_eq!(opened.was_clean, closes);
                let name_of = |index| heap.core().root_name(index).unwrap().text().to_owned();
                assert!(name_of(510).starts_with(second), "{}", name_of(510));
                assert_ne!(name_of(510), name_of(511));
                for (index, value) in [(509, 2), (510, 1), (511, 0)] {
                    let vector = Vector::<u64, _>::open(&heap, &name_of(index)).unwrap();
                    assert_eq!(vector.last(), Some(value));
                }
            }
        }
    }
}
