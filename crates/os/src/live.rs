//! The figures of the process, for whoever reads its memory. Each is written by the allocator that it is of.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_pages::{FIGURES, Figure, Figures, LIVE_MAGIC};

/// See [`spandrel_pages::LIVE_SYMBOL`].
#[repr(C)]
struct Live {
    magic: u64,
    count: u64,
    /// First address of the native allocator's tables, that of the heap behind them, and the one behind
    /// its last.
    bounds: [AtomicU64; 3],
    figures: [AtomicU64; FIGURES],
}

#[unsafe(export_name = "spandrel_live")]
static LIVE: Live = Live {
    magic: LIVE_MAGIC,
    count: FIGURES as u64,
    bounds: [const { AtomicU64::new(0) }; 3],
    figures: [const { AtomicU64::new(0) }; FIGURES],
};

/// Writes a figure down.
#[inline]
pub fn set(figure: Figure, value: u64) {
    LIVE.figures[figure as usize].store(value, Relaxed);
}

/// A figure as it was written last.
#[inline]
pub fn get(figure: Figure) -> u64 {
    LIVE.figures[figure as usize].load(Relaxed)
}

/// Writes down where the native allocator's tables begin, where the heap behind them, and where that ends.
pub fn set_bounds(bounds: [usize; 3]) {
    for (place, bound) in LIVE.bounds.iter().zip(bounds) {
        place.store(bound as u64, Relaxed);
    }
}

/// All figures as they were written last.
pub fn all() -> Figures {
    let mut figures = [0; FIGURES];
    for (figure, live) in figures.iter_mut().zip(&LIVE.figures) {
        *figure = live.load(Relaxed);
    }
    figures
}
