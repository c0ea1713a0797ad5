//! The types of roots that a program has declared, with their names: a table in the heap's handle.

use core::mem::MaybeUninit;

use spandrel_pheap::trace::hash;
use spandrel_pheap::{RootType, TraceFn};

use crate::trace::ROOTS;

/// The longest name of a root.
pub const NAME_BYTES: usize = 40;

/// The layout of a named root for which the program has declared none: recovery looks at every word of the object.
const UNTYPED: u64 = hash("C", 0);

/// The layout of a named root with that number of the program's.
pub const fn declared(layout: u64) -> u64 {
    if layout == 0 { UNTYPED } else { layout }
}

/// Which root a type is of.
pub enum Root<'a> {
    Numbered(usize),
    Named(&'a str),
}

/// A row of the table: which root, and the layout of its type.
struct Key {
    /// Its number; of a named root, one behind all.
    number: u16,
    len: u16,
    name: [u8; NAME_BYTES],
    layout: u64,
}

impl Key {
    fn name(&self) -> &str {
        let bytes = self.name.get(..self.len.into()).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    fn is(&self, root: &Root<'_>) -> bool {
        match *root {
            Root::Numbered(number) => usize::from(self.number) == number,
            Root::Named(name) => usize::from(self.number) == ROOTS && self.name() == name,
        }
    }
}

/// See the head of this file. Zeroes are an empty table. It must not move, as types lead to names in it. Pages without a type are never
/// touched.
pub struct Types {
    count: usize,
    types: [MaybeUninit<RootType<'static>>; ROOTS],
    keys: [Key; ROOTS],
}

impl Types {
    pub fn all(&self) -> &[RootType<'static>] {
        // SAFETY: `set` has written the first `count` types.
        unsafe { core::slice::from_raw_parts(self.types.as_ptr().cast(), self.count) }
    }

    fn position(&self, root: &Root<'_>) -> Option<usize> {
        self.keys.iter().take(self.count).position(|key| key.is(root))
    }

    /// Whether the root has a declared type.
    pub fn has(&self, root: &Root<'_>) -> bool {
        self.position(root).is_some()
    }

    /// Whether there is room for `more` types.
    pub fn has_room(&self, more: usize) -> bool {
        more <= ROOTS - self.count
    }

    /// The layout that a named root has, or gets.
    pub fn layout(&self, name: &str) -> u64 {
        let key = self.position(&Root::Named(name)).and_then(|at| self.keys.get(at));
        key.map_or(UNTYPED, |key| key.layout)
    }

    /// Declares the type of a root: `trace` names the pointers of its object.
    ///
    /// # Safety
    /// `trace` may be called for any object of `bytes` bytes, and the table does not move while [`Types::all`] is in use.
    pub unsafe fn set(
        &mut self,
        root: &Root<'_>,
        layout: u64,
        trace: Option<TraceFn>,
        bytes: usize,
    ) {
        let at = self.position(root).unwrap_or(self.count);
        let (Some(key), Some(place)) = (self.keys.get_mut(at), self.types.get_mut(at)) else {
            return;
        };
        key.layout = declared(layout);
        // SAFETY: promised by the caller; the name lies in the table, and never changes once it is set.
        let new = unsafe {
            match *root {
                Root::Numbered(number) => {
                    key.number = number as u16;
                    RootType::raw(number, trace, bytes)
                }
                Root::Named(name) => {
                    let len = name.len().min(NAME_BYTES);
                    (key.number, key.len) = (ROOTS as u16, len as u16);
                    key.name[..len].copy_from_slice(&name.as_bytes()[..len]);
                    let name: &'static str = &*core::ptr::from_ref(key.name());
                    RootType::raw_named(name, key.layout, trace, bytes)
                }
            }
        };
        place.write(new);
        self.count = self.count.max(at + 1);
    }
}
