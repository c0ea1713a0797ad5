//! Experiments over a fleet (TEMERAIRE, 6.4): a stable part of hosts, or of programs on hosts, runs
//! on a variant, and says so in its statistics.

use core::fmt;

/// What is told apart: all programs of a host together, or each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Unit {
    /// A host.
    #[default]
    Host,
    /// A program on a host, by its name.
    HostProgram,
}

/// An experiment: `name:percent`, then `,unit=host` or `,unit=host+program`, then `,mode=MODE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Experiment<'a> {
    /// Its name. The parts of experiments of different names have nothing to do with each other.
    pub name: &'a str,
    /// Hundredths of a percent that run on the variant.
    pub part: u16,
    /// What is told apart.
    pub unit: Unit,
    /// The variant, as `SPANDREL_MODE` has it; none: it is as what it is compared with.
    pub mode: Option<&'a str>,
}

/// Why an experiment was refused; the message names the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExperimentError<'a> {
    /// No name, or one that could not stand in a file.
    Name(&'a str),
    /// Not a percentage.
    Percent(&'a str),
    /// Neither a unit nor a mode.
    Option(&'a str),
}

impl fmt::Display for ExperimentError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) => write!(
                f,
                "'{text}' does not begin with a name of up to {NAME_MOST} letters, digits, '-', '_' and \
                 '.', and ':' (as in lazy:5 or lazy:0.5,unit=host+program,mode=native)"
            ),
            Self::Percent(text) => {
                write!(f, "'{text}' is not a percentage from 0 to 100 with up to two decimals")
            }
            Self::Option(text) => {
                write!(f, "'{text}' is not unit=host, unit=host+program or mode=MODE")
            }
        }
    }
}

impl core::error::Error for ExperimentError<'_> {}

/// Letters of a name.
const NAME_MOST: usize = 64;
/// Hundredths of a percent in all.
const WHOLE: u16 = 10_000;

impl<'a> Experiment<'a> {
    /// Parses an experiment. A mode stands last, as it may have commas itself; what it says is not
    /// looked at here.
    ///
    /// # Errors
    /// The text is none.
    pub fn parse(text: &'a str) -> Result<Self, ExperimentError<'a>> {
        let (name, rest) = text.split_once(':').ok_or(ExperimentError::Name(text))?;
        let may_stand = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MOST || !name.chars().all(may_stand) {
            return Err(ExperimentError::Name(text));
        }
        let (percent, mut options) = match rest.split_once(',') {
            Some((percent, options)) => (percent, Some(options)),
            None => (rest, None),
        };
        let part = part(percent).ok_or(ExperimentError::Percent(percent))?;
        let mut experiment = Self { name, part, unit: Unit::Host, mode: None };
        while let Some(option) = options {
            if let Some(mode) = option.strip_prefix("mode=") {
                experiment.mode = Some(mode);
                break;
            }
            let (first, rest) = match option.split_once(',') {
                Some((first, rest)) => (first, Some(rest)),
                None => (option, None),
            };
            experiment.unit = match first {
                "unit=host" => Unit::Host,
                "unit=host+program" => Unit::HostProgram,
                _ => return Err(ExperimentError::Option(first)),
            };
            options = rest;
        }
        Ok(experiment)
    }

    /// Whether a program on a host runs on the variant: always the same answer, and for no more than the
    /// part of all that there are.
    pub fn is_variant(&self, host: &[u8], program: &[u8]) -> bool {
        let program = if self.unit == Unit::HostProgram { program } else { b"" };
        let parts = [self.name.as_bytes(), host, program];
        // FNV-1a over the parts, an end between them; then murmur3's finaliser, so that all bits count.
        let bytes = parts.into_iter().flat_map(|part| part.iter().copied().chain([0]));
        let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        hash ^= hash >> 33;
        hash % u64::from(WHOLE) < u64::from(self.part)
    }
}

/// Hundredths of a percent: `5`, `0.5`, `12.25`.
fn part(percent: &str) -> Option<u16> {
    let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let hundredths = decimals.parse::<u16>().ok()? * if decimals.len() == 1 { 10 } else { 1 };
    let part = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
    (part <= WHOLE).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::format;
    use std::string::ToString;

    #[test]
    fn what_can_be_said() {
        let plain = Experiment { name: "lazy", part: 500, unit: Unit::Host, mode: None };
        assert_eq!(Experiment::parse("lazy:5"), Ok(plain));
        assert_eq!(Experiment::parse("lazy:5.00,unit=host"), Ok(plain));
        let all = "a.b-c_1:0.25,unit=host+program,mode=template=0-4KiB:jemalloc,4KiB-:mmap";
        let experiment = Experiment::parse(all).unwrap();
        assert_eq!((experiment.part, experiment.unit), (25, Unit::HostProgram));
        assert_eq!(experiment.mode, Some("template=0-4KiB:jemalloc,4KiB-:mmap"));
        assert_eq!(Experiment::parse("x:100").map(|e| e.part), Ok(10_000));
    }

    #[test]
    fn what_cannot_is_named() {
        for text in ["", "x", ":5", "a b:5", "ä:5"] {
            assert_eq!(Experiment::parse(text), Err(ExperimentError::Name(text)));
        }
        for percent in ["", "101", "100.01", "-1", "5%", "1.234", ".5", "5.", "1e1", "99999999"] {
            let text = format!("x:{percent}");
            assert_eq!(Experiment::parse(&text), Err(ExperimentError::Percent(percent)));
        }
        for option in ["", "unit=", "unit=program", "modes=x"] {
            let text = format!("x:5,{option}");
            let error = Experiment::parse(&text).unwrap_err();
            assert_eq!(error, ExperimentError::Option(option));
            assert!(error.to_string().contains(option));
        }
    }

    #[test]
    fn the_part_is_as_large_as_was_said_and_stays() {
        let variants = |text: &str| {
            let experiment = Experiment::parse(text).unwrap();
            let host = |n: u32| format!("host-{n}.example");
            (0..20_000).filter(|n| experiment.is_variant(host(*n).as_bytes(), b"p")).count()
        };
        assert_eq!((variants("x:0"), variants("x:100")), (0, 20_000));
        for name in ["x", "y", "another"] {
            let tenth = variants(&format!("{name}:10"));
            assert!((1_850..2_150).contains(&tenth), "{tenth}");
        }
        // A host that is in stays in when the part grows.
        let (small, large) =
            (Experiment::parse("x:3").unwrap(), Experiment::parse("x:30").unwrap());
        for n in 0..2_000_u32 {
            let host = n.to_string();
            assert!(
                !small.is_variant(host.as_bytes(), b"") || large.is_variant(host.as_bytes(), b"")
            );
        }
    }

    #[test]
    fn units() {
        let host = Experiment::parse("x:50").unwrap();
        let pair = Experiment::parse("x:50,unit=host+program").unwrap();
        let programs = [&b"a"[..], b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
        let distinct = |experiment: &Experiment<'_>| {
            programs.iter().filter(|program| experiment.is_variant(b"one", program)).count()
        };
        assert!([0, 8].contains(&distinct(&host)));
        assert!((1..8).contains(&distinct(&pair)));
    }
}
