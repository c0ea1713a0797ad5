//! What is damaged is replaced by what loses least.

use spandrel_pmem::{LINE_BYTES, Medium};

use crate::check::{Finding, Kind, check_watched};
use crate::error::Error;
use crate::layout::{BLOCK_BYTES, first_block};
use crate::progress::Watcher;
use crate::shared::Core;
use crate::superblock::{Identity, NAMES, Record, State, UNDO_LOG, forget_asking};

/// Damages that are mended before the next look.
const AT_ONCE: usize = 64;

/// Mends a heap that nobody has open: headers that are none become free blocks, roots and names that are none are taken away, then
/// all is collected. `told` hears of each thing that is lost so. How many there were.
///
/// # Errors
/// As for [`check`](crate::check): it cannot be mended, or there is no memory. It is to be recovered then.
pub fn repair<M: Medium>(medium: &M, told: &mut dyn FnMut(&Finding)) -> Result<u64, Error> {
    repair_watched(medium, told, None)
}

/// The same, and somebody is told how far it is: of each look at all of the heap anew, as nobody knows how many it takes, and of
/// the collection.
///
/// # Errors
/// As for [`repair`].
pub fn repair_watched<M: Medium>(
    medium: &M,
    told: &mut dyn FnMut(&Finding),
    watcher: Option<Watcher<'_>>,
) -> Result<u64, Error> {
    let (identity, record) = (Identity::read(medium)?, Record::read(medium)?);
    forget_asking(medium);
    // From now on it is to be recovered, whatever happens.
    let dirty = Record { state: State::Dirty, ..record.next() };
    dirty.write(medium);
    // What is left of the log is not of a change, whether it could be undone or not.
    let _ = crate::undo::replay(medium);
    crate::undo::wipe(medium);
    if crate::transaction_log::replay(medium).is_err() {
        crate::transaction_log::wipe(medium);
    }
    let mut count = 0;
    loop {
        let (mut words, mut found) = ([0; AT_ONCE], 0);
        let mut hear = |finding: &Finding| {
            if let (Some(at), Some(place)) = (word_of(finding), words.get_mut(found)) {
                *place = at;
                found += 1;
                told(finding);
            }
        };
        check_watched(medium, &[], &mut hear, watcher)?;
        for at in &words[..found] {
            // SAFETY: of the heap's metadata, and nobody has it.
            unsafe { medium.store_word(*at, 0) };
            medium.write_back(*at, 8);
        }
        medium.fence();
        count += found as u64;
        if found == 0 {
            break;
        }
    }
    let core = Core::new(medium, identity, dirty, 0)?;
    let steps = 2 * (core.bytes() / BLOCK_BYTES) as u64;
    core.progress.watch(watcher, steps, || core.collect(&[]))?;
    core.lazy.write_back(&core.medium);
    core.fence();
    medium.checkpoint()?;
    Record { state: State::Clean, ..dirty.next() }.write(medium);
    medium.checkpoint()?;
    medium.settle()?;
    Ok(count)
}

/// The word that is not what it should be: 0, which is right everywhere, takes its place.
fn word_of(finding: &Finding) -> Option<usize> {
    let at = finding.at as usize & !7;
    if finding.kind == Kind::Lost || at >= first_block(0).start() && is_in_blocks(at) {
        return None;
    }
    let is_name = (NAMES..UNDO_LOG).contains(&at);
    Some(if is_name { at + LINE_BYTES - 8 } else { at })
}

/// Whether objects lie there, not metadata.
fn is_in_blocks(at: usize) -> bool {
    let block = crate::layout::BlockId::of(at);
    block >= first_block(block.region())
}
