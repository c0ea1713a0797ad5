//! `--name value` pairs. A full argument parser would allocate thousands of
//! objects before the measurement and so decide how fragmented the heap is.

use crate::size;
use crate::suites::Report;
use serde_json::{Map, Value};

/// The options given to a suite; every one must be asked for, or
/// [`Args::begin`] refuses it by name.
pub struct Args<'a> {
    left: Vec<(&'a str, &'a str)>,
    seen: Map<String, Value>,
}

impl<'a> Args<'a> {
    /// Splits `words` into pairs. A flag without a value reads as `"yes"`.
    pub fn parse(words: &'a [String]) -> Result<Self, String> {
        let mut left = Vec::new();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .ok_or_else(|| format!("'{word}' is not an option; options start with --"))?;
            let value = words.next_if(|next| !next.starts_with("--")).unwrap_or("yes");
            left.push((name, value));
        }
        Ok(Self { left, seen: Map::new() })
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.left.iter().position(|(n, _)| *n == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// A size such as `4KiB`.
    pub fn size(&mut self, name: &str, default: &str) -> Result<usize, String> {
        let text = self.take(name).unwrap_or(default);
        self.seen.insert(name.into(), text.into());
        size::parse(text)
            .ok_or_else(|| format!("--{name} {text}: not a size (try 4KiB, 1MiB, 2GiB)"))
    }

    /// A count.
    pub fn count(&mut self, name: &str, default: usize) -> Result<usize, String> {
        let value = match self.take(name) {
            None => default,
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not a count"))?,
        };
        self.seen.insert(name.into(), value.into());
        Ok(value)
    }

    /// A word.
    pub fn text(&mut self, name: &str, default: &'a str) -> &'a str {
        let text = self.take(name).unwrap_or(default);
        self.seen.insert(name.into(), text.into());
        text
    }

    /// A flag.
    pub fn flag(&mut self, name: &str) -> bool {
        let given = self.take(name).is_some();
        self.seen.insert(name.into(), given.into());
        given
    }

    /// The report of the run, which begins with the options in force; an error
    /// names an option that the suite does not know.
    pub fn begin(self) -> Result<Report, String> {
        match self.left.first() {
            None => Ok(Report::from_iter([("args".to_string(), Value::Object(self.seen))])),
            Some((name, _)) => Err(format!("--{name}: this suite has no such option")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn pairs_flags_and_defaults() {
        let words = words("--to 1MiB --steps --cycles 7");
        let mut args = Args::parse(&words).unwrap();
        assert_eq!(args.size("to", "4KiB"), Ok(1 << 20));
        assert_eq!(args.size("from", "4KiB"), Ok(4096));
        assert_eq!(args.count("cycles", 1), Ok(7));
        assert!(args.flag("steps"));
        assert!(!args.flag("other"));
        assert!(args.begin().is_ok());
    }

    #[test]
    fn wrong_input_is_named() {
        let line = words("--to many");
        assert!(Args::parse(&line).unwrap().size("to", "1").unwrap_err().contains("many"));
        let line = words("--what 3");
        assert!(Args::parse(&line).unwrap().begin().unwrap_err().contains("what"));
        let line = words("loose");
        assert!(Args::parse(&line).is_err());
    }
}
