//! A heap's figures as text and as JSON.

use super::log_of;
use serde_json::{Value, json};
use spandrel_os::filesystem::is_in_memory;
use spandrel_os::image::{Access, Image};
use spandrel_pheap::{Choice, Guarantee, Identity, Record, State};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A UUID: 32 hex digits in two halves.
pub fn uuid(identity: &Identity) -> String {
    identity.uuid.map(|half| format!("{half:016x}")).join("-")
}

/// An address or a hash, as text: numbers of JSON are exact up to 53 bits only.
pub fn hex(number: u64) -> String {
    format!("{number:#018x}")
}

/// The layout of types; 0 stands for any.
pub fn layout(number: u64) -> Option<String> {
    (number != 0).then(|| hex(number))
}

/// What a heap was made to lie on, as `--medium` has it.
pub fn choice(of: Choice) -> &'static str {
    match of {
        Choice::Auto => "auto",
        Choice::Mapped => "mapped",
        Choice::Logged => "logged",
    }
}

/// What is known of whether a process has the heap open.
pub fn state(state: State) -> &'static str {
    match state {
        State::Clean => "closed",
        State::Dirty => "open, or not closed",
    }
}

/// A heap's identity and record as JSON.
pub fn record(identity: &Identity, record: &Record) -> Value {
    json!({
        "uuid": uuid(identity),
        "medium": choice(identity.medium),
        "base": (identity.base != 0).then(|| hex(identity.base)),
        "sequence": record.sequence,
        "closed": record.state == State::Clean,
        "bytes": record.bytes,
        "generation": record.generation,
        "layout": layout(record.layout),
        "features": record.features,
    })
}

/// What a medium is, and what of a heap on it survives a crash of the process, one of the kernel, and loss of power.
pub struct Survival {
    pub medium: &'static str,
    pub process: &'static str,
    pub kernel: &'static str,
    pub power: &'static str,
}

const FENCED: &str = "all up to the last fence";
const CHECKPOINT: &str = "all up to the last checkpoint";

/// What survives on a medium.
pub fn survival(of: Guarantee) -> Survival {
    let (medium, process, kernel, power) = match of {
        Guarantee::Dax => ("persistent memory", "all", FENCED, FENCED),
        Guarantee::Memory => ("memory", "all", "nothing for certain", "nothing for certain"),
        Guarantee::File => ("a file with a log", CHECKPOINT, CHECKPOINT, CHECKPOINT),
        Guarantee::Copy => ("a copy in memory", "nothing", "nothing", "nothing"),
    };
    Survival { medium, process, kernel, power }
}

impl Survival {
    /// As a sentence.
    pub fn text(&self) -> String {
        let Self { medium, process, kernel, power } = *self;
        if process == kernel && kernel == power {
            return format!("{medium}: {process} survives crashes and loss of power");
        }
        let behind = match kernel == power {
            true => format!("{kernel} one of the kernel or loss of power"),
            false => format!("{kernel} one of the kernel, {power} loss of power"),
        };
        format!("{medium}: {process} survives a crash of the process, {behind}")
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let Self { medium, process, kernel, power } = *self;
        json!({"is": medium, "survives": {
            "process_crash": process, "kernel_crash": kernel, "power_loss": power,
        }})
    }
}

/// The guarantee of a heap that is opened without a medium in the options. The heap is not opened here: another process may have it.
pub fn medium_of(path: &Path, identity: &Identity) -> Guarantee {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Guarantee::File };
    let image = Image::open(&name, Access::Read);
    let lies = Lies {
        has_log: log_of(path).symlink_metadata().is_ok(),
        is_dax: is_dax(&name),
        is_in_memory: is_in_memory(&name),
        is_copied_on_write: image.is_ok_and(|image| image.is_copied_on_write()),
    };
    lies.guarantee(identity.medium)
}

/// How a heap's file lies.
#[derive(Clone, Copy, Default)]
struct Lies {
    has_log: bool,
    is_dax: bool,
    is_in_memory: bool,
    is_copied_on_write: bool,
}

impl Lies {
    /// As `Media::open` decides.
    fn guarantee(self, made: Choice) -> Guarantee {
        let is_mapped = match made {
            Choice::Logged => false,
            Choice::Mapped => !self.is_copied_on_write,
            Choice::Auto => !self.has_log && (self.is_dax || self.is_in_memory),
        };
        match is_mapped {
            true if self.is_dax => Guarantee::Dax,
            true => Guarantee::Memory,
            false => Guarantee::File,
        }
    }
}

/// Whether a file is mapped past the page cache.
fn is_dax(path: &CString) -> bool {
    // SAFETY: numbers.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the status is written to.
    let outcome = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            libc::STATX_BASIC_STATS,
            &raw mut status,
        )
    };
    outcome == 0 && status.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0
}

/// A text of a program's own, for a terminal: what a terminal obeys or hides is written out.
pub fn shown(text: &str) -> String {
    let quiet = |c: char| matches!(c, '"' | '\'' | '\\');
    text.chars().fold(String::new(), |mut all, c| {
        if quiet(c) {
            all.push(c)
        } else {
            all.extend(c.escape_debug())
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let identity = Identity { uuid: [1, 0xab << 56], base: 0, medium: Choice::Auto };
        assert_eq!(uuid(&identity), "0000000000000001-ab00000000000000");
        assert_eq!((layout(0), layout(255)), (None, Some("0x00000000000000ff".into())));
    }

    #[test]
    fn a_heap_has_the_guarantee_that_the_library_gives_it() {
        let nowhere = Lies::default();
        let copied = Lies { is_copied_on_write: true, ..nowhere };
        let (memory, dax) =
            (Lies { is_in_memory: true, ..nowhere }, Lies { is_dax: true, ..nowhere });
        for (lies, made, expected) in [
            (nowhere, Choice::Mapped, Guarantee::Memory),
            (copied, Choice::Mapped, Guarantee::File),
            (dax, Choice::Mapped, Guarantee::Dax),
            (nowhere, Choice::Auto, Guarantee::File),
            (memory, Choice::Auto, Guarantee::Memory),
            (dax, Choice::Auto, Guarantee::Dax),
            (Lies { has_log: true, ..memory }, Choice::Auto, Guarantee::File),
            (dax, Choice::Logged, Guarantee::File),
        ] {
            assert_eq!(lies.guarantee(made), expected);
        }
    }

    #[test]
    fn what_survives_is_said_once_where_it_is_the_same() {
        let text = |of| survival(of).text();
        assert_eq!(
            text(Guarantee::File),
            "a file with a log: all up to the last checkpoint survives crashes and loss of power"
        );
        assert_eq!(
            text(Guarantee::Memory),
            "memory: all survives a crash of the process, nothing for certain one of the kernel \
             or loss of power"
        );
        assert!(text(Guarantee::Dax).contains("last fence one of the kernel or loss"));
    }

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(shown("größe \"a\\b\""), "größe \"a\\b\"");
        assert_eq!(shown("\n\x1b[31mred\u{202e}"), "\\n\\u{1b}[31mred\\u{202e}");
    }
}
