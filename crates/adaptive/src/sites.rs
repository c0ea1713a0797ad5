//! Which places of a program resize objects: a sample, on request (`SPANDREL_SITES`),
//! while requests are counted. To follow a stack takes microseconds.

use core::fmt::{self, Display};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_backends::stack::{self, Stack};
use spandrel_pages::KIB;

use crate::render::Escaped;

/// One in this many reallocations is followed, and stands for all of them …
const EVERY: u64 = 16;
/// … but each that copies so much, which takes as long as following it.
const LARGE: usize = 32 * KIB;
/// Callers that make a place.
const CALLERS: usize = 8;
/// Places that are known; those beyond are not told apart from nothing.
const SITES: usize = 512;
/// Places that are looked at for one.
const PROBES: usize = 16;
/// Places that are told.
const TOLD: usize = 24;

struct Site {
    /// Of the callers; 0: the site is unused.
    hash: AtomicU64,
    reallocs: AtomicU64,
    bytes: AtomicU64,
    copied_bytes: AtomicU64,
    callers: [AtomicUsize; CALLERS],
}

static TABLE: [Site; SITES] = [const {
    Site {
        hash: AtomicU64::new(0),
        reallocs: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        copied_bytes: AtomicU64::new(0),
        callers: [const { AtomicUsize::new(0) }; CALLERS],
    }
}; SITES];
static ON: AtomicBool = AtomicBool::new(false);
static TURN: AtomicU64 = AtomicU64::new(0);
/// Whether stacks can be followed: 0 not yet, 1 a thread prepares it, 2 yes.
static READY: AtomicU8 = AtomicU8::new(0);

/// Follows reallocations from now on.
pub(crate) fn begin() {
    ON.store(true, Relaxed);
}

/// An object was given `size` bytes, for which `copied` were copied.
#[inline]
pub(crate) fn resized(size: usize, copied: usize) {
    if ON.load(Relaxed) {
        follow(size, copied);
    }
}

#[cold]
#[inline(never)]
fn follow(size: usize, copied: usize) {
    let weight = match copied {
        copied if copied >= LARGE => 1,
        _ if TURN.fetch_add(1, Relaxed).is_multiple_of(EVERY) => EVERY,
        _ => return,
    };
    // No thread waits for the preparation: what it resizes itself comes here, and a fork meanwhile leaves
    // it unfinished in the child.
    if READY.load(Acquire) != 2 {
        if READY.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            return;
        }
        stack::prepare();
        READY.store(2, Release);
    }
    let stack = Stack::here();
    let callers = stack.callers();
    let callers = callers.get(..CALLERS).unwrap_or(callers);
    if let Some(site) = site(callers) {
        site.reallocs.fetch_add(weight, Relaxed);
        site.bytes.fetch_add(weight * size as u64, Relaxed);
        site.copied_bytes.fetch_add(weight * copied as u64, Relaxed);
    }
}

/// The place of these callers, if there is room for it.
fn site(callers: &[usize]) -> Option<&'static Site> {
    // FNV-1a, by words.
    let mix = |hash: u64, caller: &usize| (hash ^ *caller as u64).wrapping_mul(0x0100_0000_01b3);
    let hash = callers.iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1);
    let first = (hash >> 32) as usize;
    (first..first + PROBES).find_map(|at| {
        let site = &TABLE[at % SITES];
        match site.hash.compare_exchange(0, hash, Relaxed, Relaxed) {
            Ok(_) => {
                for (to, from) in site.callers.iter().zip(callers) {
                    to.store(*from, Relaxed);
                }
                Some(site)
            }
            Err(known) if known == hash => Some(site),
            Err(_) => None,
        }
    })
}

/// In the child of a fork: what was before is the parent's to tell.
pub(crate) fn forget() {
    for site in TABLE.iter().filter(|site| site.hash.load(Relaxed) != 0) {
        for counter in [&site.reallocs, &site.bytes, &site.copied_bytes] {
            counter.store(0, Relaxed);
        }
    }
}

/// The places that copied most, and of these that resized most, as a JSON array.
pub(crate) struct Json;

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = [false; SITES];
        f.write_str("[")?;
        for n in 0..TOLD {
            let rest = TABLE.iter().enumerate().filter(|(at, _)| !told[*at]);
            let rank = |site: &Site| (site.copied_bytes.load(Relaxed), site.reallocs.load(Relaxed));
            let Some((at, site)) = rest.max_by_key(|(_, site)| rank(site)) else { break };
            let (copied_bytes, reallocs) = rank(site);
            if reallocs == 0 {
                break;
            }
            told[at] = true;
            let bytes = site.bytes.load(Relaxed);
            let comma = if n > 0 { "," } else { "" };
            write!(
                f,
                "{comma}{{\"reallocs\":{reallocs},\"bytes\":{bytes},\
                 \"copied_bytes\":{copied_bytes},\"callers\":["
            )?;
            let mut comma = "";
            for caller in site.callers.iter().map(|caller| caller.load(Relaxed)) {
                if caller == 0 {
                    break;
                }
                // The call, not what follows it.
                let found = stack::find(caller - 1);
                let (file, offset) = found.file.unwrap_or((b"", caller - 1));
                let function = found.function.map_or(&b""[..], |(name, _)| name);
                write!(
                    f,
                    "{comma}{{\"file\":\"{}\",\"offset\":{offset},\"function\":\"{}\"}}",
                    Escaped(file),
                    Escaped(function),
                )?;
                comma = ",";
            }
            f.write_str("]}")?;
        }
        f.write_str("]")
    }
}
