//! The figures of the process, for readers of its memory. Each is written by the allocator that it is of.

use core::fmt::{self, Display, Write};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_pages::live::{
    BOUNDS, BOUNDS_AT, FIGURES_AT, MAGIC, MODE, MODE_AT, SLICE, SLICES, SLICES_AT, STAGE_AT, Stage,
    WORDS,
};
use spandrel_pages::{AllocatorId, FIGURES, Figure, Figures};

/// See [`spandrel_pages::live`].
#[repr(C)]
struct Live {
    magic: u64,
    count: u64,
    bounds: [AtomicU64; BOUNDS],
    stage: AtomicU64,
    slices: [[AtomicU64; SLICE]; SLICES],
    mode: [AtomicU64; MODE],
    figures: [AtomicU64; FIGURES],
}

const _: () = assert!(
    offset_of!(Live, bounds) == 8 * BOUNDS_AT
        && offset_of!(Live, stage) == 8 * STAGE_AT
        && offset_of!(Live, slices) == 8 * SLICES_AT
        && offset_of!(Live, mode) == 8 * MODE_AT
        && offset_of!(Live, figures) == 8 * FIGURES_AT
        && size_of::<Live>() == 8 * WORDS
);

// A reader of the process looks for this name.
#[cfg_attr(not(feature = "apart"), unsafe(export_name = "spandrel_live"))]
static LIVE: Live = Live {
    magic: MAGIC,
    count: FIGURES as u64,
    bounds: [const { AtomicU64::new(0) }; BOUNDS],
    stage: AtomicU64::new(Stage::Loaded as u64),
    slices: [const { [const { AtomicU64::new(0) }; SLICE] }; SLICES],
    mode: [const { AtomicU64::new(0) }; MODE],
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

/// Writes down where the native allocator has what; see [`BOUNDS`].
pub fn set_bounds(bounds: [usize; BOUNDS]) {
    for (place, bound) in LIVE.bounds.iter().zip(bounds) {
        place.store(bound as u64, Relaxed);
    }
}

/// Writes down how far the library is.
pub fn set_stage(stage: Stage) {
    LIVE.stage.store(stage as u64, Relaxed);
}

/// Writes down the name of the mode in force. One at a time.
pub fn set_mode(mode: &dyn Display) {
    struct Name {
        bytes: [u8; 8 * MODE],
        len: usize,
    }
    impl Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let take = text.len().min(self.bytes.len() - self.len);
            let room = self.bytes.get_mut(self.len..self.len + take);
            if let (Some(room), Some(text)) = (room, text.as_bytes().get(..take)) {
                room.copy_from_slice(text);
                self.len += take;
            }
            Ok(())
        }
    }
    let mut name = Name { bytes: [0; 8 * MODE], len: 0 };
    let _ = write!(name, "{mode}");
    for (place, bytes) in LIVE.mode.iter().zip(name.bytes.chunks_exact(8)) {
        place.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
    }
}

/// Writes down which addresses are an allocator's, if there is room for it.
pub(crate) fn add_slice(owner: AllocatorId, base: usize, end: usize) {
    for [of, from, to] in &LIVE.slices {
        if from.compare_exchange(0, base as u64, Relaxed, Relaxed).is_ok() {
            of.store(owner as u64, Relaxed);
            to.store(end as u64, Relaxed);
            return;
        }
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
