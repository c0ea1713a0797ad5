//! Roots: where all that a heap keeps hangs (section 5.4). There are 512, by number; some have a name and a type.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_pmem::{LINE_BYTES, Medium};

use crate::collections::{self, Claim, Op, Part};
use crate::error::Error;
use crate::shared::Core;
use crate::superblock::{NAMES, ROOT_COUNT, ROOTS};
use crate::trace::{Target, Trace, TraceFn, hash};
use crate::undo::{ENTRIES, change};

/// The longest name.
pub const NAME_BYTES: usize = 40;
/// The name, the type's layout, and last a word that says that both are there.
const LAYOUT_AT: usize = NAME_BYTES;
const SEAL_AT: usize = NAME_BYTES + 16;
const _: () = assert!(SEAL_AT + 8 == LINE_BYTES);

/// The type of a root, for marking.
#[derive(Clone, Copy, Debug)]
pub struct RootType<'a> {
    pub(crate) name: &'a str,
    index: Option<usize>,
    pub(crate) layout: u64,
    pub(crate) target: Target,
}

impl<'a> RootType<'a> {
    /// The root of that name leads to a `T`.
    pub const fn of<T: Trace>(name: &'a str) -> Self {
        Self { name, index: None, layout: T::LAYOUT, target: Target::of::<T>(1) }
    }

    /// The root with that number, which has no name, leads to a `T`.
    pub const fn numbered<T: Trace>(index: usize) -> Self {
        Self { name: "", index: Some(index), layout: T::LAYOUT, target: Target::of::<T>(1) }
    }

    /// The root with that number, which has no name, leads to a value of `bytes` bytes of which a function names the pointers; none: it
    /// has none.
    ///
    /// # Safety
    /// The function may be called for the address of any such value, whatever it holds.
    pub const unsafe fn raw(index: usize, trace: Option<TraceFn>, bytes: usize) -> Self {
        let target = Target { trace, bytes, count: 1 };
        Self { name: "", index: Some(index), layout: 0, target }
    }

    /// The same of the root of a name, whose type has that layout as the program numbers it.
    ///
    /// # Safety
    /// As for [`RootType::raw`].
    pub const unsafe fn raw_named(
        name: &'a str,
        layout: u64,
        trace: Option<TraceFn>,
        bytes: usize,
    ) -> Self {
        Self { name, index: None, layout, target: Target { trace, bytes, count: 1 } }
    }

    pub(crate) fn is_index(&self, index: usize) -> bool {
        self.index == Some(index)
    }
}

/// The name of a root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RootName {
    bytes: [u8; NAME_BYTES],
    /// The layout of its type; see [`Trace::LAYOUT`].
    pub layout: u64,
}

/// As text: names are seen in errors.
impl fmt::Debug for RootName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:#018x})", self.text(), self.layout)
    }
}

impl RootName {
    fn new(name: &str, layout: u64) -> Result<Self, Error> {
        if name.is_empty() || name.len() > NAME_BYTES || name.bytes().any(|byte| byte == 0) {
            return Err(Error::RootName);
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, layout })
    }

    /// As text.
    pub fn text(&self) -> &str {
        let len = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.bytes[..len]).unwrap_or("")
    }

    fn words(&self) -> [u64; NAME_BYTES / 8 + 1] {
        let mut words = [0; NAME_BYTES / 8 + 1];
        for (word, bytes) in words.iter_mut().zip(self.bytes.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        words[LAYOUT_AT / 8] = self.layout;
        words
    }

    fn seal(&self) -> u64 {
        hash(self.text(), self.layout) | 1
    }
}

impl<M: Medium> Core<M> {
    /// A root's word.
    pub fn root(&self, index: usize) -> Result<u64, Error> {
        if index >= ROOT_COUNT {
            return Err(Error::RootIndex(index));
        }
        Ok(self.load(ROOTS + index * 8))
    }

    /// Refuses to change a root that a collection has a handle on, or that a transaction of another thread has changed, or whose collection
    /// it has changed. The caller has the lock of the roots.
    fn check_root_is_free(&self, op: &Op<'_, M>, index: usize) -> Result<(), Error> {
        let number = self.number.load(Relaxed);
        if collections::is_claimed(number, index) {
            return Err(self.root_name(index).map_or(Error::RootName, Error::HandleLives));
        }
        let open = self.transactions.open_id();
        if op.transaction() != Some(open) && collections::touched(number, index).is_by(open) {
            return Err(Error::InTransaction);
        }
        Ok(())
    }

    /// Changes words of roots and names, all or none of which are durable. The caller has the lock of the roots.
    fn change_roots(
        &self,
        op: &mut Op<'_, M>,
        words: &[(usize, u64)],
        roots: impl Iterator<Item = usize>,
    ) -> Result<(), Error> {
        let Some(id) = op.transaction() else {
            change(&self.medium, words);
            return Ok(());
        };
        let mut parts = [const { Part::Word(0, 0) }; ENTRIES];
        for (part, (at, word)) in parts.iter_mut().zip(words) {
            *part = Part::Word(*at, *word);
        }
        op.change(&parts[..words.len()])?;
        roots.for_each(|index| collections::touch_root(self.number.load(Relaxed), index, id));
        Ok(())
    }

    /// Sets a root: durable when this returns, in a transaction when that has ended.
    pub fn set_root(&self, index: usize, word: u64) -> Result<(), Error> {
        self.root(index)?;
        let mut op = Op::begin(self)?;
        let _roots = self.roots.lock();
        self.check_root_is_free(&op, index)?;
        if op.transaction().is_none() {
            self.store_root(index, word);
            return Ok(());
        }
        self.change_roots(&mut op, &[(ROOTS + index * 8, word)], core::iter::once(index))
    }

    /// Sets a root that the caller has claimed, and waits until it is durable, also in a transaction.
    pub fn set_root_now(&self, index: usize, word: u64) -> Result<(), Error> {
        self.root(index)?;
        self.check_process()?;
        let _roots = self.roots.lock();
        self.store_root(index, word);
        Ok(())
    }

    fn store_root(&self, index: usize, word: u64) {
        let at = ROOTS + index * 8;
        self.store(at, word);
        self.write_back(at, 8);
        self.fence();
    }

    /// Sets several, all or none of which are durable.
    pub fn set_roots(&self, roots: &[(usize, u64)]) -> Result<(), Error> {
        roots.iter().try_for_each(|(index, _)| self.root(*index).map(drop))?;
        if roots.len() > ENTRIES {
            return Err(Error::RootIndex(roots.len()));
        }
        let mut op = Op::begin(self)?;
        let mut words = [(0, 0); ENTRIES];
        for (place, (index, word)) in words.iter_mut().zip(roots) {
            *place = (ROOTS + index * 8, *word);
        }
        let _roots = self.roots.lock();
        roots.iter().try_for_each(|(index, _)| self.check_root_is_free(&op, *index))?;
        self.change_roots(&mut op, &words[..roots.len()], roots.iter().map(|(index, _)| *index))
    }

    /// Changes several words of objects, all or none of which are durable.
    pub fn change(&self, words: &[(usize, u64)]) {
        let _roots = self.roots.lock();
        change(&self.medium, words);
    }

    /// The name of a root, if it has one.
    pub fn root_name(&self, index: usize) -> Option<RootName> {
        self.sealed_name(index)?.ok()
    }

    /// The name of a root, if its place is sealed. The error: the address of a place that is sealed and has no name. The seal is read once: a rollback of another thread may seal the place
    /// again at any time.
    fn sealed_name(&self, index: usize) -> Option<Result<RootName, usize>> {
        let line = NAMES + index * LINE_BYTES;
        let seal = self.load(line + SEAL_AT);
        if seal == 0 {
            return None;
        }
        let name = self.name_at(index);
        let is_name = seal == name.seal() && !name.text().is_empty();
        Some(if is_name { Ok(name) } else { Err(line) })
    }

    /// What stands in the place of a root's name, sealed or not.
    fn name_at(&self, index: usize) -> RootName {
        let line = NAMES + index * LINE_BYTES;
        let mut bytes = [0; NAME_BYTES];
        for (word, place) in bytes.chunks_exact_mut(8).enumerate() {
            place.copy_from_slice(&self.load(line + word * 8).to_le_bytes());
        }
        RootName { bytes, layout: self.load(line + LAYOUT_AT) }
    }

    /// The number of the root of that name and type; the first unused one gets the name if there is none.
    pub fn named_root(&self, name: &str, layout: u64) -> Result<usize, Error> {
        let _inside = self.gate.enter_to_look()?;
        let _roots = self.roots.lock();
        self.find_or_name_root(name, layout)
    }

    /// The same, claimed for the handle of its collection. Both at once: no thread removes or sets the root in between.
    ///
    /// # Errors
    /// As for [`Core::named_root`]; [`Error::HandleLives`]: also if it is the handle of another root that leads to the same collection;
    /// [`Error::InTransaction`]: a transaction that has not ended has changed the
    /// collection, and is another thread's, or has changed the root. Its rollback would leave the handle with the head that the root
    /// leads to no more.
    pub fn claim_root(&self, name: &str, layout: u64) -> Result<(usize, Claim), Error> {
        let inside = self.gate.enter_to_look()?;
        let _roots = self.roots.lock();
        let index = self.find_or_name_root(name, layout)?;
        let number = self.number.load(Relaxed);
        let lives = |index| self.root_name(index).map_or(Error::RootName, Error::HandleLives);
        let claim = Claim::take(number, index).ok_or_else(|| lives(index))?;
        // Before the roots: what a transaction that has ended by now has left of them is there.
        let open = self.transactions.open_id();
        let is_own = !inside.row().transaction().get().is_null();
        // Other roots may lead to the same head.
        let head = self.load(ROOTS + index * 8);
        let leads_there =
            |other: usize| other == index || head != 0 && self.load(ROOTS + other * 8) == head;
        for other in (0..ROOT_COUNT).filter(|other| leads_there(*other)) {
            if other != index && collections::is_claimed(number, other) {
                return Err(lives(other));
            }
            let touched = collections::touched(number, other);
            if touched.is_by(open) && (touched.is_of_root() || !is_own) {
                return Err(Error::InTransaction);
            }
        }
        Ok((index, claim))
    }

    /// See [`Core::named_root`]. The caller has the lock of the roots.
    fn find_or_name_root(&self, name: &str, layout: u64) -> Result<usize, Error> {
        let wanted = RootName::new(name, layout)?;
        // A transaction that has removed a root may be rolled back: the root has its name again then. The rollback takes no lock of the roots;
        // so the transaction is looked at before the names. If it has ended by then, the names are as it has left them.
        let (number, open) = (self.number.load(Relaxed), self.transactions.open_id());
        let is_open = |index: usize| collections::touched(number, index).is_by(open);
        if let Some(index) = self.find_root(name)? {
            let heap = self.root_name(index).map_or(0, |name| name.layout);
            return if heap == layout {
                Ok(index)
            } else {
                Err(Error::RootType { heap, given: layout })
            };
        }
        self.check_process()?;
        if (0..ROOT_COUNT).any(|index| is_open(index) && self.name_at(index).text() == name) {
            return Err(Error::InTransaction);
        }
        // From the end: programs that use numbers begin with the first.
        let is_unused = |index: &usize| {
            self.root_name(*index).is_none()
                && self.load(ROOTS + index * 8) == 0
                && !is_open(*index)
        };
        let index = (0..ROOT_COUNT).rev().find(is_unused).ok_or(Error::RootsFull)?;
        self.write_name(index, &wanted);
        Ok(index)
    }

    /// Gives a root of a heap that is being restored its name.
    pub fn name_root(&self, index: usize, name: &str, layout: u64) -> Result<(), Error> {
        self.root(index)?;
        let name = RootName::new(name, layout)?;
        let _roots = self.roots.lock();
        self.write_name(index, &name);
        Ok(())
    }

    /// The line is durable from its first store on: with the seal all of it is there.
    fn write_name(&self, index: usize, name: &RootName) {
        let line = NAMES + index * LINE_BYTES;
        self.store(line + SEAL_AT, 0);
        for (number, word) in name.words().into_iter().enumerate() {
            self.store(line + number * 8, word);
        }
        self.store(line + SEAL_AT, name.seal());
        self.write_back(line, LINE_BYTES);
        self.fence();
    }

    /// The number of the root of that name.
    ///
    /// # Errors
    /// [`Error::Damaged`]: there is none, and a line that has a seal is no name. It may have been that one: a new root of the name
    /// would be an empty one in its place.
    pub fn find_root(&self, name: &str) -> Result<Option<usize>, Error> {
        let mut damaged = None;
        for index in 0..ROOT_COUNT {
            match self.sealed_name(index) {
                Some(Ok(found)) if found.text() == name => return Ok(Some(index)),
                Some(Ok(_)) | None => {}
                Some(Err(line)) => _ = damaged.get_or_insert(line),
            }
        }
        match damaged {
            Some(line) => Err(Error::Damaged { at: line as u64, what: "the name of a root" }),
            None => Ok(None),
        }
    }

    /// Takes a root and its name away, both or neither.
    pub fn remove_root(&self, name: &str) -> Result<(), Error> {
        let mut op = Op::begin(self)?;
        let _roots = self.roots.lock();
        let index = self.find_root(name)?.ok_or(Error::RootName)?;
        self.check_root_is_free(&op, index)?;
        let words = [(ROOTS + index * 8, 0), (NAMES + index * LINE_BYTES + SEAL_AT, 0)];
        self.change_roots(&mut op, &words, core::iter::once(index))
    }

    /// The word that stands for an object: a pointer to where it begins.
    pub fn root_word(&self, object: Option<NonNull<u8>>) -> Result<u64, Error> {
        let Some(object) = object else { return Ok(0) };
        let at = self.offset(object.as_ptr());
        match self.object_of(at) {
            Some(found) if found.start == at => Ok(crate::pointer::TAG | at as u64),
            _ => Err(Error::Foreign(object.as_ptr() as usize)),
        }
    }
}
