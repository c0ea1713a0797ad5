//! Profiles: a mode in a file, in a line-oriented subset of TOML.
//!
//! ```toml
//! version = 1
//! mode = "template"
//! [template]
//! "0-4KiB" = "jemalloc"
//! "4KiB-64KiB" = "sys"
//! "64KiB-" = "mmap"
//! ```
//!
//! What stands below `[learnt]` or `[learnt.…]` says where it is from; only `machines`, the kinds of machines that
//! it was learnt on, is read.

use core::fmt;

use crate::mode::ModeError;
use crate::template::{Builder, TemplateError};
use crate::{Mode, Template, parse_mode};

/// The version of the format that this library reads.
pub const VERSION: u32 = 1;
/// Largest profile in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// What a profile says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile<'a> {
    /// The mode to start in.
    pub mode: Mode,
    /// The list of machines, as it stands there; empty: the profile does not name machines.
    machines: &'a str,
}

impl Profile<'_> {
    /// Whether it says what machines it was learnt on.
    pub fn names_machines(&self) -> bool {
        self.machines.contains('"')
    }

    /// Whether it was learnt on machines of this kind, or written by hand: with a processor of that model, and programs
    /// that get huge pages as the word says (`always`, `madvise`, `never`). How many processors there are does not
    /// matter.
    pub fn is_of(&self, model: &str, huge_pages: &str) -> bool {
        let mut kinds = self.machines.split('"').skip(1).step_by(2).peekable();
        let is_this = |kind: &str| {
            let rest = kind.strip_prefix(model);
            rest.is_some_and(|rest| rest.starts_with(", "))
                && kind.rsplit(": ").next() == Some(huge_pages)
        };
        model.is_empty() || kinds.peek().is_none() || kinds.any(is_this)
    }
}

/// A profile that was refused, with the line (from 1) where the reason stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileError<'a> {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong there.
    pub kind: ProfileErrorKind<'a>,
}

/// What is wrong with a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileErrorKind<'a> {
    /// The bytes are not UTF-8 text.
    NotText,
    /// The line is neither `key = value` nor `[section]` nor a comment.
    Syntax(&'a str),
    /// Text without quotes.
    Unquoted(&'a str),
    /// No such key here.
    UnknownKey(&'a str),
    /// No such section.
    UnknownSection(&'a str),
    /// The key was set before.
    Twice(&'a str),
    /// `version` is missing or not the first key.
    NoVersion,
    /// A version that this library does not read.
    Version(&'a str),
    /// `mode` is missing.
    NoMode,
    /// The mode is refused.
    Mode(ModeError<'a>),
    /// The template is refused.
    Template(TemplateError<'a>),
    /// `[template]` stands beside a mode that is not `template`.
    TemplateUnused,
}

impl fmt::Display for ProfileError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            ProfileErrorKind::NotText => f.write_str("not UTF-8 text"),
            ProfileErrorKind::Syntax(line) => {
                write!(f, "'{line}' is neither 'key = value' nor '[section]' nor a comment")
            }
            ProfileErrorKind::Unquoted(text) => {
                write!(f, "{text} must stand in quotes: \"{text}\"")
            }
            ProfileErrorKind::UnknownKey(key) => {
                write!(f, "there is no key '{key}' here: known are version and mode")
            }
            ProfileErrorKind::UnknownSection(name) => {
                write!(f, "there is no section '[{name}]': known are [template] and [learnt]")
            }
            ProfileErrorKind::Twice(key) => write!(f, "'{key}' is set twice"),
            ProfileErrorKind::NoVersion => {
                write!(f, "the profile must begin with 'version = {VERSION}'")
            }
            ProfileErrorKind::Version(found) => write!(
                f,
                "this is a profile of version {found}, and this library reads version {VERSION}"
            ),
            ProfileErrorKind::NoMode => f.write_str("'mode = \"…\"' is missing"),
            ProfileErrorKind::Mode(error) => error.fmt(f),
            ProfileErrorKind::Template(error) => error.fmt(f),
            ProfileErrorKind::TemplateUnused => {
                f.write_str("[template] needs 'mode = \"template\"'")
            }
        }
    }
}

impl core::error::Error for ProfileError<'_> {}

/// Parses a profile.
///
/// # Errors
/// The first line that is wrong, and why.
pub fn parse(bytes: &[u8]) -> Result<Profile<'_>, ProfileError<'_>> {
    let text = core::str::from_utf8(bytes).map_err(|error| ProfileError {
        line: 1 + bytes.iter().take(error.valid_up_to()).filter(|b| **b == b'\n').count(),
        kind: ProfileErrorKind::NotText,
    })?;
    let mut version_seen = false;
    let mut mode = None;
    let mut mode_line = 0;
    let mut template: Option<(Builder, usize)> = None;
    let (mut in_learnt, mut machines) = (false, "");
    let mut last_line = 1;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let fail = |kind| ProfileError { line, kind };
        last_line = line;
        let content = strip_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        if let Some(section) = content.strip_prefix('[') {
            let name = section.strip_suffix(']').ok_or(fail(ProfileErrorKind::Syntax(content)))?;
            in_learnt = name.trim().split('.').next() == Some("learnt");
            if in_learnt {
                continue;
            }
            if name.trim() != "template" {
                return Err(fail(ProfileErrorKind::UnknownSection(name.trim())));
            }
            if template.is_some() {
                return Err(fail(ProfileErrorKind::Twice("[template]")));
            }
            template = Some((Builder::new(), line));
            continue;
        }
        if in_learnt {
            let pair = content.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            if let Some(("machines", list)) = pair {
                machines = list;
            }
            continue;
        }
        let (key, value) =
            content.split_once('=').ok_or(fail(ProfileErrorKind::Syntax(content)))?;
        let (key, raw_value) = (key.trim(), value.trim());
        // As TOML has it: text stands in quotes, numbers and plain keys do not.
        let quoted = |text| unquote(text).ok_or(fail(ProfileErrorKind::Unquoted(text)));
        if let Some((builder, _)) = &mut template {
            let (key, value) = (quoted(key)?, quoted(raw_value)?);
            builder.add(key, value).map_err(|e| fail(ProfileErrorKind::Template(e)))?;
            continue;
        }
        match key {
            "version" if version_seen => return Err(fail(ProfileErrorKind::Twice(key))),
            "version" if raw_value.parse() == Ok(VERSION) => version_seen = true,
            "version" => return Err(fail(ProfileErrorKind::Version(raw_value))),
            _ if !version_seen => return Err(fail(ProfileErrorKind::NoVersion)),
            "mode" if mode.is_some() => return Err(fail(ProfileErrorKind::Twice(key))),
            "mode" => {
                let value = quoted(raw_value)?;
                mode = Some(parse_mode(value).map_err(|e| fail(ProfileErrorKind::Mode(e)))?);
                mode_line = line;
            }
            _ => return Err(fail(ProfileErrorKind::UnknownKey(key))),
        }
    }
    let at_end = |kind| ProfileError { line: last_line, kind };
    if !version_seen {
        return Err(at_end(ProfileErrorKind::NoVersion));
    }
    let mode = mode.ok_or(at_end(ProfileErrorKind::NoMode))?;
    match template {
        None => Ok(Profile { mode, machines }),
        Some((builder, _)) if mode == Mode::Preset => {
            let template: Template =
                builder.finish().map_err(|e| at_end(ProfileErrorKind::Template(e)))?;
            Ok(Profile { mode: Mode::Template(template), machines })
        }
        Some(_) => Err(ProfileError { line: mode_line, kind: ProfileErrorKind::TemplateUnused }),
    }
}

/// The line up to a `#` that does not stand within quotes.
fn strip_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' if !quoted => return line.get(..at).unwrap_or(line),
            _ => {}
        }
    }
    line
}

fn unquote(text: &str) -> Option<&str> {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;

    const BRUG: &str = "# the paper's\nversion = 1\nmode = \"template\" # see below\n[template]\n\
                        \"0-4KiB\" = \"jemalloc\"\n\"4KiB-64KiB\" = \"sys\"\n\"64KiB-\" = \"mmap\"\n";

    #[test]
    fn a_template_in_a_file() {
        let Mode::Template(template) = parse(BRUG.as_bytes()).unwrap().mode else { panic!() };
        assert_eq!(template.to_string(), Template::BRUG.to_string());
    }

    #[test]
    fn where_it_is_from_is_not_read() {
        let learnt = "[learnt]\ncpu_ms = 12.5\n[learnt.sizes.\"0-256B\"]\nwhatever\n";
        let text = format!("version = 1\nmode = \"native\"\n{learnt}");
        assert_eq!(parse(text.as_bytes()).unwrap().mode, parse_mode("native").unwrap());
        let head = "version = 1\nmode = \"template\"\n";
        let around = format!("{head}{learnt}[template]\n\"0-\" = \"sys\"\n");
        assert!(parse(around.as_bytes()).is_ok());
        let text = format!("{text}[learned]\n");
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.line == 7 && error.to_string().contains("[learned]"), "{error}");
    }

    #[test]
    fn machines_are_told_apart_by_model_and_huge_pages() {
        let of = |machines: &str| {
            let text = format!("version = 1\nmode = \"sys\"\n[learnt]\nmachines = {machines}\n");
            ["madvise", "never"]
                .map(|word| parse(text.as_bytes()).unwrap().is_of("AMD EPYC #7", word))
        };
        let here = "\"AMD EPYC #7, 2 cores, huge pages: madvise\"";
        assert_eq!(of(&format!("[{here}]")), [true, false]);
        assert_eq!(of(&format!("[\"Xeon, 64 cores, huge pages: never\", {here}]")), [true, false]);
        assert_eq!(of("[\"AMD EPYC #77, 2 cores, huge pages: madvise\"]"), [false, false]);
        assert_eq!(of("[]"), [true, true]);
        let by_hand = parse(b"version = 1\nmode = \"sys\"\n").unwrap();
        assert!(by_hand.is_of("anything", "never"));
        let unknown = format!("version = 1\nmode = \"sys\"\n[learnt]\nmachines = [{here}]\n");
        assert!(parse(unknown.as_bytes()).unwrap().is_of("", "never"), "the machine is unknown");
    }

    #[test]
    fn any_mode_in_a_file() {
        let profile = parse(b"version = 1\nmode = \"switch=jemalloc\"\n").unwrap();
        assert_eq!(profile.mode, parse_mode("switch=jemalloc").unwrap());
    }

    #[test]
    fn the_line_of_the_reason_is_named() {
        for (text, line, part) in [
            ("", 1, "version"),
            ("mode = \"auto\"", 1, "begin with 'version"),
            ("version = 2\n", 1, "version 2"),
            ("version = 1\n", 1, "mode"),
            ("version = 1\n\nmood = 1", 3, "'mood'"),
            ("version = 1\nmode = \"fast\"", 2, "'fast'"),
            ("version = 1\nmode = \"auto\"\nmode = \"sys\"", 3, "twice"),
            ("version = 1\nmode = \"auto\"\n[tmplate]", 3, "[tmplate]"),
            ("version = 1\nmode = \"auto\"\n[template]\n\"0-\" = \"sys\"", 2, "[template] needs"),
            (
                "version = 1\nmode = \"template\"\n[template]\n\"0-4K\"=\"sys\"\n\"5K-\"=\"mmap\"",
                5,
                "gap",
            ),
            ("version = 1\nmode = \"template\"\n[template]\n\"0-4K\"=\"sys\"", 4, "open"),
            ("version = 1\nmode = \"template\"\n[template]\n\"0-\"=\"hoard\"", 4, "'hoard'"),
            ("version = 1\nnonsense", 2, "'nonsense'"),
            ("version = 1\nmode = sys", 2, "\"sys\""),
            ("version = 1\nmode = \"template\"\n[template]\n0- = \"sys\"", 4, "quotes"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        assert_eq!(parse(b"version = 1\n\xff").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes).map_err(|e| e.to_string());
        }

        #[test]
        fn no_damage_is_a_panic(at in 0usize..BRUG.len(), byte in any::<u8>()) {
            let mut bytes = BRUG.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = parse(&bytes).map_err(|e| e.to_string());
        }
    }
}
