//! Where in its first page an object begins.
//!
//! If all objects began with a page, the same place of each would fall into the same few lines of a cache: a program that
//! walks through the rows of a matrix by columns would find none of them again. So objects begin at different lines,
//! by the number of their slot. An object that moves with its pages keeps its line.

use spandrel_pages::{KIB, LINE_BYTES, PAGE_BYTES, spread};

use super::layout::{ROOM, SlotId};
use super::lists::Want;

/// A new object from this size on may have a page more for the sake of its line: a sixteenth more at most. Of a smaller one, and of one that grew to
/// its size, only the rest of the last page is used.
const PAGE_MORE_FROM: usize = 64 * KIB;
/// Objects from this size on may not: an object of whole huge pages would need a small page behind them.
const PAGE_MORE_TO: usize = 1024 * KIB;

/// Bytes from the start of the first page of a slot to its new object, of which `touched` pages are resident. Whole lines, less than a page.
pub fn offset(id: SlotId, size: usize, align: usize, want: Want, touched: usize) -> usize {
    if align > LINE_BYTES {
        return 0;
    }
    let pages = size.div_ceil(PAGE_BYTES);
    let rest = pages.saturating_mul(PAGE_BYTES) - size;
    let may_add = (PAGE_MORE_FROM..PAGE_MORE_TO).contains(&size)
        && matches!(want, Want::Near(_) | Want::Fitting(_))
        // Warm pages are not left for one page more.
        && touched != pages
        && size + PAGE_BYTES <= ROOM[id.class()];
    let most = if may_add { PAGE_BYTES - LINE_BYTES } else { rest };
    spread(id.index() as usize, most / LINE_BYTES + 1) * LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(size: usize, align: usize) -> [usize; 64] {
        core::array::from_fn(|index| {
            offset(SlotId::new(1, index as u32), size, align, Want::Near(1), 0)
        })
    }

    #[test]
    fn neighbours_begin_at_different_lines() {
        for size in [156_000, 128 * KIB, 100 * KIB] {
            let mut all = offsets(size, 16);
            assert!(all.iter().all(|at| *at < PAGE_BYTES && at.is_multiple_of(LINE_BYTES)));
            all.sort_unstable();
            let different = 1 + all.windows(2).filter(|two| two[0] != two[1]).count();
            assert!(different >= 40, "{different} lines for {size} bytes");
        }
    }

    #[test]
    fn an_object_has_no_page_more_where_that_costs() {
        for size in [1, 4096, 5000, 32 * KIB, 2048 * KIB, 2048 * KIB - 100] {
            let pages = size.div_ceil(PAGE_BYTES);
            assert!(offsets(size, 16).iter().all(|at| (at + size).div_ceil(PAGE_BYTES) == pages));
        }
        let grown = offset(SlotId::new(1, 7), 128 * KIB, 1, Want::Warm(32), 64);
        assert_eq!(grown, 0);
    }

    #[test]
    fn what_is_aligned_stays_so() {
        assert_eq!(offsets(156_000, 128), [0; 64]);
    }
}
