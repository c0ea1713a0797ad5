//! Modes: how a whole process, or a scope, chooses among allocators.

use core::fmt;

use spandrel_pages::{AllocatorId, ByteSize, KIB, ParseSizeError};

use crate::template::TemplateError;
use crate::{Available, Template};

/// How requests are distributed.
// There is no allocation to box the largest variant with, and few modes live
// at a time.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything by one allocator.
    Only(AllocatorId),
    /// By size.
    Template(Template),
    /// By size, in the form of our own preset.
    Preset,
    /// The paper's C library: a base allocator below a switch point, pages
    /// above, and pages for objects that are resized often.
    Switch(Switch),
    /// The best static choice for each size and operation.
    Auto,
}

/// The policy of the paper's C library (Brug, section III.A.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The allocator that serves objects below the switch point.
    pub base: AllocatorId,
    /// Size in bytes from which objects are page-mapped.
    pub point: usize,
    /// Value of an object's allocation counter (+1 for each growth, -1 for each
    /// shrink, never below zero) at which it moves to pages whatever its size.
    pub threshold: u8,
}

impl Switch {
    /// 128 KiB over glibc, as in the paper; it leaves the threshold open, and
    /// eight growths are three octaves of doubling or clear appending.
    pub const DEFAULT: Self = Switch { base: AllocatorId::Sys, point: 128 * KIB, threshold: 8 };
    /// Largest accepted threshold.
    pub const MAX_THRESHOLD: usize = 255;
}

/// A mode that was refused: the text, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeError<'a> {
    /// The whole text.
    pub input: &'a str,
    /// What is wrong with it.
    pub kind: ModeErrorKind<'a>,
}

/// What is wrong with a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeErrorKind<'a> {
    /// No mode has that name.
    Unknown,
    /// The template is not sound.
    Template(TemplateError<'a>),
    /// `switch` cannot stand on that allocator.
    SwitchBase(&'a str),
    /// `switch` has no such setting.
    SwitchKey(&'a str),
    /// A setting of `switch` has an impossible value.
    SwitchPoint(&'a str, ParseSizeError),
    /// The threshold is not a number from 1 to 255.
    SwitchThreshold(&'a str),
    /// The mode needs an allocator that this build does not contain.
    NotBuiltIn(AllocatorId),
}

impl fmt::Display for ModeError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = self.input;
        match &self.kind {
            ModeErrorKind::Unknown => write!(
                f,
                "unknown mode '{input}': known are auto, native, sys, jemalloc, mimalloc, tcmalloc, mmap, \
                 template[=brug|=RANGES] and switch[=BASE][,point=SIZE][,threshold=N]"
            ),
            ModeErrorKind::Template(error) => write!(f, "mode '{input}': {error}"),
            ModeErrorKind::SwitchBase(base) => write!(
                f,
                "mode '{input}': '{base}' cannot be the base of switch: use sys, jemalloc, \
                 mimalloc or tcmalloc"
            ),
            ModeErrorKind::SwitchKey(key) => write!(
                f,
                "mode '{input}': switch has no setting '{key}': it has point=SIZE and threshold=N"
            ),
            ModeErrorKind::SwitchPoint(text, why) => {
                write!(f, "mode '{input}': the switch point '{text}' is not a size: {why}")
            }
            ModeErrorKind::SwitchThreshold(text) => {
                write!(f, "mode '{input}': the threshold '{text}' is not a number from 1 to 255")
            }
            ModeErrorKind::NotBuiltIn(id) => write!(
                f,
                "mode '{input}': {name} is not built into this library: build it with the \
                 feature '{name}', or choose another mode",
                name = id.name()
            ),
        }
    }
}

impl core::error::Error for ModeError<'_> {}

/// Parses a mode: our names, and the paper's (`BrugTemplate`, `BrugAutoOpt`).
/// Case does not matter.
///
/// # Errors
/// See [`ModeErrorKind`]; whether the allocators are built in is
/// [`Mode::check`]'s to say.
pub fn parse_mode(input: &str) -> Result<Mode, ModeError<'_>> {
    let fail = |kind| ModeError { input, kind };
    let text = input.trim();
    let (name, rest) = match text.split_once(['=', ',']) {
        // "switch,point=64K" has settings but no base.
        Some((name, _)) if text.as_bytes().get(name.len()) == Some(&b',') => {
            (name, text.get(name.len()..))
        }
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let is = |known: &str| name.trim().eq_ignore_ascii_case(known);
    if is("template") || is("brugtemplate") {
        return match rest.map(str::trim) {
            None if is("brugtemplate") => Ok(Mode::Template(Template::BRUG)),
            None => Ok(Mode::Preset),
            Some(preset) if preset.eq_ignore_ascii_case("preset") => Ok(Mode::Preset),
            Some(brug) if brug.eq_ignore_ascii_case("brug") => Ok(Mode::Template(Template::BRUG)),
            Some(ranges) => Template::parse(ranges)
                .map(Mode::Template)
                .map_err(|error| fail(ModeErrorKind::Template(error))),
        };
    }
    if is("switch") {
        return parse_switch(rest.unwrap_or("")).map(Mode::Switch).map_err(fail);
    }
    if rest.is_some() {
        return Err(fail(ModeErrorKind::Unknown));
    }
    if is("auto") || is("brugautoopt") {
        return Ok(Mode::Auto);
    }
    AllocatorId::parse(name.trim()).map(Mode::Only).ok_or(fail(ModeErrorKind::Unknown))
}

fn parse_switch(text: &str) -> Result<Switch, ModeErrorKind<'_>> {
    let mut switch = Switch::DEFAULT;
    for (index, part) in text.split(',').enumerate() {
        let part = part.trim();
        let Some((key, value)) = part.split_once('=') else {
            if index == 0 && part.is_empty() {
                continue;
            }
            if index > 0 {
                return Err(ModeErrorKind::SwitchKey(part));
            }
            switch.base = AllocatorId::parse(part)
                .filter(|base| *base != AllocatorId::Mmap)
                .ok_or(ModeErrorKind::SwitchBase(part))?;
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key.eq_ignore_ascii_case("point") {
            switch.point =
                ByteSize::parse(value).map_err(|why| ModeErrorKind::SwitchPoint(value, why))?.0;
        } else if key.eq_ignore_ascii_case("threshold") {
            switch.threshold = value
                .parse()
                .ok()
                .filter(|threshold| *threshold > 0)
                .ok_or(ModeErrorKind::SwitchThreshold(value))?;
        } else {
            return Err(ModeErrorKind::SwitchKey(key));
        }
    }
    Ok(switch)
}

impl Mode {
    /// Whether every allocator of the mode is at hand.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check<'a>(&self, input: &'a str, available: Available) -> Result<(), ModeError<'a>> {
        let need = |id: AllocatorId| {
            if available.has(id) {
                Ok(())
            } else {
                Err(ModeError { input, kind: ModeErrorKind::NotBuiltIn(id) })
            }
        };
        match self {
            Mode::Only(id) => need(*id),
            Mode::Template(template) => {
                template.ranges().iter().try_for_each(|range| need(range.allocator))
            }
            Mode::Switch(switch) => need(switch.base),
            Mode::Preset | Mode::Auto => Ok(()),
        }
    }

    /// Whether there are requests that an allocator serves in this mode.
    pub fn has(&self, id: AllocatorId) -> bool {
        let of = |template: &Template| template.ranges().iter().any(|range| range.allocator == id);
        match self {
            Mode::Only(only) => *only == id,
            Mode::Template(template) => of(template),
            Mode::Preset => of(&Template::PRESET),
            Mode::Switch(switch) => [switch.base, AllocatorId::Mmap].contains(&id),
            Mode::Auto => [AllocatorId::Native, AllocatorId::Mmap].contains(&id),
        }
    }
}

impl fmt::Display for Mode {
    /// The form that [`parse_mode`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Only(id) => f.write_str(id.name()),
            Mode::Template(template) if *template == Template::BRUG => f.write_str("template=brug"),
            Mode::Template(template) => write!(f, "template={template}"),
            Mode::Preset => f.write_str("template"),
            Mode::Switch(switch) => {
                write!(f, "switch={}", switch.base.name())?;
                if switch.point != Switch::DEFAULT.point {
                    write!(f, ",point={}", ByteSize(switch.point))?;
                }
                if switch.threshold != Switch::DEFAULT.threshold {
                    write!(f, ",threshold={}", switch.threshold)?;
                }
                Ok(())
            }
            Mode::Auto => f.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn kind(text: &str) -> ModeErrorKind<'_> {
        parse_mode(text).unwrap_err().kind
    }

    #[test]
    fn our_names_and_the_papers() {
        for (text, mode) in [
            ("auto", Mode::Auto),
            ("BrugAutoOpt", Mode::Auto),
            ("SYS", Mode::Only(AllocatorId::Sys)),
            ("glibc", Mode::Only(AllocatorId::Sys)),
            ("MMAP", Mode::Only(AllocatorId::Mmap)),
            (" mimalloc ", Mode::Only(AllocatorId::Mimalloc)),
            ("template", Mode::Preset),
            ("BRUGTEMPLATE", Mode::Template(Template::BRUG)),
            ("template=brug", Mode::Template(Template::BRUG)),
            ("switch", Mode::Switch(Switch::DEFAULT)),
            (
                "switch=jemalloc,point=64K,threshold=3",
                Mode::Switch(Switch { base: AllocatorId::Jemalloc, point: 65536, threshold: 3 }),
            ),
            ("switch,point=1M", Mode::Switch(Switch { point: 1 << 20, ..Switch::DEFAULT })),
        ] {
            assert_eq!(parse_mode(text), Ok(mode), "{text}");
            assert_eq!(parse_mode(&mode.to_string()), Ok(mode), "{mode}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(kind("fast"), ModeErrorKind::Unknown);
        assert_eq!(kind(""), ModeErrorKind::Unknown);
        assert_eq!(kind("sys=1"), ModeErrorKind::Unknown);
        assert_eq!(kind("switch=mmap"), ModeErrorKind::SwitchBase("mmap"));
        assert_eq!(kind("switch,pint=1"), ModeErrorKind::SwitchKey("pint"));
        assert_eq!(kind("switch,threshold=0"), ModeErrorKind::SwitchThreshold("0"));
        assert_eq!(
            kind("switch,point=x"),
            ModeErrorKind::SwitchPoint("x", ParseSizeError::NoNumber)
        );
        assert!(parse_mode("fast").unwrap_err().to_string().contains("'fast'"));
    }

    #[test]
    fn an_allocator_that_is_not_built_in_is_refused() {
        let available = Available::BASE.with(AllocatorId::Jemalloc);
        for text in ["tcmalloc", "switch=mimalloc", "template=0-1K:mimalloc,1K-:sys"] {
            let error = parse_mode(text).unwrap().check(text, available).unwrap_err();
            assert!(matches!(error.kind, ModeErrorKind::NotBuiltIn(_)), "{text}");
        }
        for text in ["auto", "template", "template=brug", "switch=jemalloc"] {
            parse_mode(text).unwrap().check(text, available).unwrap();
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "\\PC*") {
            let _ = parse_mode(&text).map_err(|e| e.to_string());
        }
    }
}
