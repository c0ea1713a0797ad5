//! The collections of a durable state: those of [`crate::heap::collections`], whose handles keep the arena.

use core::fmt;
use std::sync::Arc;

use super::Arena;
use crate::heap::collections as all;
use crate::heap::{Error, Trace};

pub use all::{Key, Str};

/// See [`all::HashMap`].
pub type HashMap<K, V> = all::HashMap<'static, K, V, Arc<Arena>>;
/// See [`all::HashSet`].
pub type HashSet<K> = all::HashSet<'static, K, Arc<Arena>>;
/// See [`all::SortedMap`].
pub type SortedMap<K, V> = all::SortedMap<'static, K, V, Arc<Arena>>;
/// See [`all::SortedSet`].
pub type SortedSet<K> = all::SortedSet<'static, K, Arc<Arena>>;
/// See [`all::SortedBytes`]: keys of up to 64 KiB, values of any length.
pub type SortedBytes = all::SortedBytes<'static, Arc<Arena>>;
/// See [`all::Vector`].
pub type Vector<T> = all::Vector<'static, T, Arc<Arena>>;
/// See [`all::Queue`].
pub type Queue<T> = all::Queue<'static, T, Arc<Arena>>;
/// See [`all::Text`].
pub type Text = all::Text<'static, Arc<Arena>>;

/// Opening a collection by its name, in the closure that [`super::Durable::open`] calls, or within a write.
pub trait Open: Sized {
    /// The collection of that name, which is made if it is not there.
    ///
    /// # Errors
    /// [`Error::HandleLives`], [`Error::RootType`], [`Error::RootName`], and those of an allocation.
    fn open(arena: &Arc<Arena>, name: &str) -> Result<Self, Error>;
}

macro_rules! open {
    ($($name:ident<$($of:ident),*> where [$($bound:ident: $($needs:path),+);*])+) => {$(
        impl<$($of),*> Open for $name<$($of),*>
        where
            $($bound: $($needs +)+),*
        {
            fn open(arena: &Arc<Arena>, name: &str) -> Result<Self, Error> {
                all::$name::<$($of),*>::open(Arc::clone(arena), name)
            }
        }
    )+};
}

open! {
    HashMap<K, V> where [K: Key; V: Trace, Copy]
    HashSet<K> where [K: Key]
    SortedMap<K, V> where [K: Trace, Copy, Ord; V: Trace, Copy]
    SortedSet<K> where [K: Trace, Copy, Ord, fmt::Debug]
    Vector<T> where [T: Trace, Copy]
    Queue<T> where [T: Trace, Copy]
}

impl Open for Text {
    fn open(arena: &Arc<Arena>, name: &str) -> Result<Self, Error> {
        all::Text::open(Arc::clone(arena), name)
    }
}

impl Open for SortedBytes {
    fn open(arena: &Arc<Arena>, name: &str) -> Result<Self, Error> {
        all::SortedBytes::open(Arc::clone(arena), name)
    }
}
