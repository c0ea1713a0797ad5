//! What was measured, as a profile keeps it: for people, and for other profiles to be merged with.

use super::Trial;
use super::bands::{Band, Load};
use super::verdict::Ratio;
use serde::Deserialize;
use spandrel_pages::AllocatorId;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is known of one job, or of several.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The kinds of machines that they ran on.
    pub machines: Vec<String>,
    /// The experiments, and the groups in them, that their hosts belong to.
    #[serde(default)]
    pub experiments: Vec<String>,
    /// CPU time of one run of each by default, in milliseconds.
    pub cpu_ms: f64,
    /// Time of fixed modes to that of the default.
    #[serde(default)]
    pub modes: BTreeMap<String, Ratio>,
    /// What was asked for in each band, by its name.
    #[serde(default)]
    pub sizes: BTreeMap<String, Sizes>,
}

/// What is known of a band.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// New objects and resized ones.
    pub requests: u64,
    /// Bytes asked for by them.
    pub bytes: u64,
    /// Time of the job to that by default when another allocator serves the band. Nothing: it does not
    /// matter which one does.
    #[serde(default)]
    pub tried: BTreeMap<String, Ratio>,
}

/// A profile, of which only this is looked at.
#[derive(Deserialize)]
struct File {
    learnt: Option<Record>,
}

impl Record {
    /// What a profile says it is from; `None`: it does not say.
    ///
    /// # Errors
    /// Why it cannot be read, and the line (from 1) if that is known.
    pub fn read(text: &str) -> Result<Option<Self>, (Option<usize>, String)> {
        let file: File = toml::from_str(text).map_err(|why| {
            let before = why.span().and_then(|span| text.get(..span.start));
            (before.map(|text| 1 + text.matches('\n').count()), why.message().to_string())
        })?;
        Ok(file.learnt)
    }

    /// The text of it, to stand at the end of a profile.
    pub fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.into()).to_string();
        let list = |names: &[String]| -> String {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            names.join(", ")
        };
        let mut text = format!(
            "\n[learnt] # what it is from: time is to that of auto, and at most so for certain\n\
             machines = [{}]\ncpu_ms = {:.3}\n",
            list(&self.machines),
            self.cpu_ms
        );
        if !self.experiments.is_empty() {
            let _ = writeln!(text, "experiments = [{}]", list(&self.experiments));
        }
        let ratio = |Ratio { median, most }: &Ratio| {
            format!("{{ time = {median:.4}, at_most = {most:.4} }}")
        };
        if !self.modes.is_empty() {
            text += "\n[learnt.modes]\n";
            for (name, time) in &self.modes {
                let _ = writeln!(text, "{name} = {}", ratio(time));
            }
        }
        for (name, Sizes { requests, bytes, tried }) in &self.sizes {
            let _ = writeln!(text, "\n[learnt.sizes.{}]", quoted(name));
            let _ = writeln!(text, "requests = {requests}\nbytes = {bytes}");
            if !tried.is_empty() {
                let tried: Vec<_> =
                    tried.iter().map(|(name, time)| format!("{name} = {}", ratio(time))).collect();
                let _ = writeln!(text, "tried = {{ {} }}", tried.join(", "));
            }
        }
        text
    }

    /// What was asked for in each of the bands.
    pub fn loads(&self, bands: &[Band]) -> Vec<Load> {
        let of = |band: &Band| match self.sizes.get(&band.name()) {
            Some(Sizes { requests, bytes, .. }) => Load { requests: *requests, bytes: *bytes },
            None => Load::default(),
        };
        bands.iter().map(of).collect()
    }

    /// What was tried in the bands.
    pub fn trials(&self, bands: &[Band]) -> Vec<Trial> {
        let in_band = |(at, band): (usize, &Band)| {
            let tried = self.sizes.get(&band.name()).map(|sizes| &sizes.tried);
            let of = move |(name, ratio): (&String, &Ratio)| {
                let allocator = AllocatorId::ALL.into_iter().find(|id| id.name() == name)?;
                Some(Trial { band: at, allocator, ratio: Some(*ratio) })
            };
            tried.into_iter().flatten().filter_map(of).collect::<Vec<_>>()
        };
        bands.iter().enumerate().flat_map(in_band).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ratio = |median, most| Ratio { median, most };
        let sizes = Sizes {
            requests: 7,
            bytes: u64::MAX >> 1,
            tried: [("sys".into(), ratio(1.5, 2.0)), ("jemalloc".into(), ratio(0.75, 0.875))]
                .into(),
        };
        let cold = Sizes { requests: 1, ..Sizes::default() };
        let record = Record {
            machines: vec!["a \"quoted\" one".into(), "b".into()],
            experiments: vec!["lazy variant".into()],
            cpu_ms: 12.5,
            modes: [("native".into(), ratio(1.0, 1.25))].into(),
            sizes: [("0-256B".into(), sizes), ("1MiB-".into(), cold)].into(),
        };
        let text = format!("version = 1\nmode = \"auto\"\n{}", record.text());
        assert_eq!(Record::read(&text).unwrap().as_ref(), Some(&record), "{text}");
        assert!(spandrel_policy::profile::parse(text.as_bytes()).is_ok(), "{text}");
        assert_eq!(Record::read("version = 1").unwrap(), None);
        let bands = super::super::bands::of_auto();
        assert_eq!(record.loads(&bands)[0].requests, 7);
        assert_eq!(record.trials(&bands).len(), 2);
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        for (text, line) in [
            ("version = 1\n[learnt]\nmachines = []\ncpu_ms = \"x\"\n", 4),
            ("version = 1\n\n[learnt]\nmachines = []\ncpu_ms = 1\nfurther = 2\n", 6),
            ("version = 1\n[learnt]\nmachines = [\n", 3),
        ] {
            let (found, why) = Record::read(text).unwrap_err();
            assert!(
                found.is_some_and(|found| found.abs_diff(line) <= 1),
                "{found:?} {why}: {text}"
            );
        }
    }
}
