//! Modes for a stretch of a thread.

use spandrel_adaptive::{self as adaptive, ModeChange};

/// A mode by name or by one of the common constants.
///
/// Parsed when it is entered; after the first time a mode is looked up in a
/// short list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode<'a> {
    /// The best static choice for each size and operation.
    Auto,
    /// glibc.
    Sys,
    /// jemalloc; needs the feature.
    Jemalloc,
    /// mimalloc; needs the feature.
    Mimalloc,
    /// google/tcmalloc; needs the feature.
    Tcmalloc,
    /// Page-mapped.
    Mmap,
    /// Our own general-purpose allocator.
    Native,
    /// Our preset by size.
    Template,
    /// The paper's preset by size; needs the feature `jemalloc`.
    Brug,
    /// The paper's C library.
    Switch,
    /// Any mode, as in `SPANDREL_MODE`.
    Named(&'a str),
}

impl<'a> Mode<'a> {
    /// The name, as in `SPANDREL_MODE`.
    pub const fn name(self) -> &'a str {
        match self {
            Mode::Auto => "auto",
            Mode::Sys => "sys",
            Mode::Jemalloc => "jemalloc",
            Mode::Mimalloc => "mimalloc",
            Mode::Tcmalloc => "tcmalloc",
            Mode::Mmap => "mmap",
            Mode::Native => "native",
            Mode::Template => "template",
            Mode::Brug => "template=brug",
            Mode::Switch => "switch",
            Mode::Named(name) => name,
        }
    }
}

impl<'a> From<&'a str> for Mode<'a> {
    fn from(name: &'a str) -> Self {
        Mode::Named(name)
    }
}

/// Runs `body` in a mode: what this thread allocates meanwhile is placed by it.
/// Nestable; the previous mode is back afterwards, also when `body` panics.
///
/// A mode that cannot be entered (a wrong name, a feature that is off) changes
/// nothing: `body` runs in the mode that is current. [`try_scope`] tells.
///
/// ```
/// let table = spandrel::scope(spandrel::Mode::Mmap, || vec![0u8; 1 << 20]);
/// assert_eq!(table.len(), 1 << 20); // freed right under whatever mode
/// ```
pub fn scope<'a, T>(mode: impl Into<Mode<'a>>, body: impl FnOnce() -> T) -> T {
    let mut result = None;
    let mut body = Some(body);
    let mut run = || result = body.take().map(|body| body());
    if adaptive::with_mode(mode.into().name(), &mut run).is_err() {
        run();
    }
    match result {
        Some(result) => result,
        // `run` was called exactly once, inside the mode or outside.
        None => unreachable!(),
    }
}

/// As [`scope()`], but a mode that cannot be entered is an error, and `body` is
/// not run.
///
/// # Errors
/// As for [`set_mode`](crate::set_mode).
pub fn try_scope<'a, T>(
    mode: impl Into<Mode<'a>>,
    body: impl FnOnce() -> T,
) -> Result<T, ModeChange<'a>> {
    adaptive::with_mode(mode.into().name(), body)
}
