//! Removal from a sorted map.

use super::{LEVELS, SortedMap};
use crate::collections::held::HeapRef;
use crate::collections::op::{Op, Part};
use crate::error::Error;
use crate::pointer::PPtr;
use crate::trace::Trace;
use crate::transaction::Transaction;

impl<K: Trace + Copy + Ord, V: Trace + Copy, H: HeapRef> SortedMap<'_, K, V, H> {
    /// Removes a key; see [`SortedMap::remove`].
    pub(super) fn remove_in(
        &self,
        op: &mut Op<'_, H::Medium>,
        key: &K,
    ) -> Result<Option<V>, Error> {
        let places = self.before(key);
        let Some(node) = self.at(places[0], key) else { return Ok(None) };
        let value = self.value(node.at);
        let core = op.core();
        let word = PPtr::<u8>::to(node.at).raw();
        for (level, place) in places.iter().enumerate().skip(1).rev() {
            if core.load(*place) == word && level < node.height {
                Self::set_upper_link(op, *place, core.load(node.at + Self::LINKS_AT + level * 8))?;
            }
        }
        // Durable before the lowest level changes: no link may lead to a node that is freed.
        core.fence();
        op.change(&[
            Part::Word(places[0], core.load(node.at + Self::LINKS_AT)),
            Part::Word(self.held.at() + Self::LEN_AT, (self.len() as u64).saturating_sub(1)),
        ])?;
        // SAFETY: nothing leads to it any more. If it is no object the heap was damaged before.
        let _ = unsafe { op.free(node.at) };
        Ok(Some(value))
    }

    /// Removes all keys, at once. Takes time linear in their number, as it frees each node; in a transaction also room in the heap, 32 bytes
    /// for each key.
    ///
    /// # Errors
    /// As for [`SortedMap::insert`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let no_links = core::array::from_fn::<_, { LEVELS + 1 }, _>(|word| {
            Part::Word(self.held.at() + word * 8, 0)
        });
        // No key is compared: the lowest level has each node once, in whatever order. A damaged one may have a circle.
        let (mut next, mut rest) = (op.core().load(self.held.at()), self.len());
        let mut free_all = |op: &mut Op<'_, H::Medium>| {
            while let Some(node) = self.node(next).filter(|_| rest > 0) {
                (next, rest) = (op.core().load(node.at + Self::LINKS_AT), rest - 1);
                // SAFETY: with the change nothing leads to it any more. If it is no object the heap was damaged before.
                let freed = unsafe { op.free(node.at) };
                // Only a log without room is an error: without a record the node would be lost.
                freed.or_else(|why| op.transaction().map_or(Ok(()), |_| Err(why)))?;
            }
            Ok(())
        };
        if op.transaction().is_none() {
            op.change(&no_links)?;
            return free_all(&mut op);
        }
        // A part that does not fit into the log undoes all of it.
        let nested = Transaction::begin(op.core())?;
        free_all(&mut op)?;
        op.change(&no_links)?;
        nested.commit()
    }
}
