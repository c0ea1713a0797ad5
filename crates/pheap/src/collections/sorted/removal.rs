//! Removal from a sorted map. No link leads to a node that is freed, whatever the comparison of keys says: `Ord` is safe code of the
//! program.

use super::{LEVELS, SortedMap};
use crate::collections::held::HeapRef;
use crate::collections::op::{Op, Part};
use crate::error::Error;
use crate::pointer::PPtr;
use crate::trace::Trace;
use crate::transaction::Transaction;

/// The links of a level lead to no node, or in a circle.
struct DamagedLevel;

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
        let mut is_whole = true;
        for level in (1..node.height).rev() {
            let met = Some(places[level]).filter(|place| core.load(*place) == word);
            let link = met.map_or_else(|| self.upper_link(word, level), |place| Ok(Some(place)));
            is_whole &= link.is_ok();
            if let Ok(Some(place)) = link {
                Self::set_upper_link(op, place, core.load(node.at + Self::LINKS_AT + level * 8))?;
            }
        }
        // Durable before the lowest level changes: no link may lead to a node that is freed.
        core.fence();
        op.change(&[
            Part::Word(places[0], core.load(node.at + Self::LINKS_AT)),
            Part::Word(self.held.at() + Self::LEN_AT, (self.len() as u64).saturating_sub(1)),
        ])?;
        // In a damaged level another link may lead to the node: a collection frees it then.
        if is_whole {
            // SAFETY: nothing leads to it any more. If it is no object the heap was damaged before.
            let _ = unsafe { op.free(node.at) };
        }
        Ok(Some(value))
    }

    /// Where the link of an upper level to a node is that a search by its key has not met: the link is missing, as after a failure, or the
    /// order of the keys is none. Compares no keys, so that the safety of the heap does not rest on `Ord`. Takes time linear in the nodes of
    /// the level.
    ///
    /// # Errors
    /// The level is damaged.
    #[cold]
    fn upper_link(&self, word: u64, level: usize) -> Result<Option<usize>, DamagedLevel> {
        let mut place = self.held.at() + level * 8;
        for _ in 0..=self.len() {
            match self.held.core().load(place) {
                0 => return Ok(None),
                found if found == word => return Ok(Some(place)),
                other => {
                    let node = self.node(other).filter(|node| node.height > level);
                    place = node.ok_or(DamagedLevel)?.at + Self::LINKS_AT + level * 8;
                }
            }
        }
        Err(DamagedLevel)
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
