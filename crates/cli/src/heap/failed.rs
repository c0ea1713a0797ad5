//! Why a heap could not be opened, copied or mended: the input, the reason, the way out.

use super::{holder, log_of};
use crate::failure::Failure;
use spandrel_pheap::Error;
use std::path::Path;

/// Why a heap could not be used.
pub fn failed(path: &Path, why: Error) -> Failure {
    Failure::refused(format!("{}: {}", path.display(), text(path, why)))
}

/// Why a heap could not be copied into memory.
pub fn copy_failed(path: &Path, why: Error) -> Failure {
    let holder = holder::of(path);
    let reason = match why {
        Error::Locked => format!(
            "{holder} has it open, and it has no log, which would tell the last checkpoint; close it there first, or \
             take --wait 10, with the right to write to it: it is lent where it comes to a checkpoint"
        ),
        Error::NoCheckpoint => format!(
            "{holder} has it open, and came to no checkpoint while it was waited for; have it call checkpoint \
             (Heap::checkpoint, spandrel_heap_checkpoint) now and then, take a longer --wait SECONDS, or close it there \
             first"
        ),
        why => return failed(path, why),
    };
    Failure::refused(format!("{}: {reason}", path.display()))
}

/// Whether the heap is damaged, and not the question wrong.
pub fn is_damage(why: &Error) -> bool {
    matches!(why, Error::Damaged { .. } | Error::Truncated { .. })
}

/// The reason and the way out.
pub fn text(path: &Path, why: Error) -> String {
    let shown = path.display();
    match why {
        Error::System(libc::ENOENT) => {
            "there is no such file; name a heap, which 'spandrel heap create' makes".into()
        }
        Error::System(libc::ELOOP) => {
            "it is a symbolic link, which may lead elsewhere tomorrow; name the file itself".into()
        }
        Error::System(libc::EINVAL | libc::EISDIR | libc::ENXIO) => {
            "it is no file that holds bytes; name a heap, which 'spandrel heap create' makes".into()
        }
        Error::ForeignLog => format!(
            "{} is the log of another heap; move it away, and put this heap's own there if it has one",
            log_of(path).display()
        ),
        // Of one that is made: at the address that was drawn for it.
        Error::System(libc::EEXIST) => {
            "it belongs at an address where something else lies; try again: what lies where \
             differs from one process to the next"
                .into()
        }
        Error::System(number) => format!(
            "{}; name a file that can be read, and written where it is to change",
            std::io::Error::from_raw_os_error(number)
        ),
        Error::NotAHeap => format!("{why}; name one, which 'spandrel heap create' makes"),
        Error::Version(_) | Error::Features(_) | Error::Medium(_) => {
            format!("{why}; use the version of spandrel that it was made with")
        }
        Error::Damaged { .. } => format!(
            "{why}; 'spandrel heap check {shown}' says what is damaged, 'spandrel heap repair \
             {shown}' mends it with the least loss"
        ),
        Error::Truncated { .. } => format!("{why}; what is missing only a copy has: take that"),
        Error::BaseTaken(_) => {
            format!("{why}; try again: what lies where differs from one process to the next")
        }
        Error::Locked | Error::NoCheckpoint => format!("{why}; close it there first"),
        Error::Full => format!("{why}; make room, or have 'ulimit -v' allow more"),
        why => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_input_and_a_way_out() {
        let damaged = Error::Damaged { at: 64, what: "the header of a block" };
        for why in [
            Error::System(libc::ENOENT),
            Error::System(libc::ELOOP),
            Error::System(libc::EACCES),
            Error::ForeignLog,
            Error::System(libc::EEXIST),
            Error::NotAHeap,
            Error::Unfinished,
            Error::Version(9),
            Error::Medium(9),
            damaged,
            Error::Truncated { has: 1, needs: 2 },
            Error::BaseTaken(1 << 44),
            Error::Locked,
            Error::NoCheckpoint,
            Error::Full,
        ] {
            for failure in [failed(Path::new("a.heap"), why), copy_failed(Path::new("a.heap"), why)]
            {
                assert_eq!(failure.code, 2);
                let message = failure.message;
                assert!(message.starts_with("a.heap: ") && message.contains(';'), "{message}");
                assert!(!message.contains("(error "), "{message}");
            }
        }
        assert!(is_damage(&damaged) && !is_damage(&Error::NotAHeap));
    }
}
