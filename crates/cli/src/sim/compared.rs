//! What is compared: every policy with every release, on the same operations.

use super::{SimArgs, bar, failed};
use spandrel_console::Failure;
use spandrel_sim::{Config, Error, Operations, Outcome, Policy, Release, run as simulate};

/// The most releases: a plot has no more colours.
const RELEASES_MAX: usize = 6;
/// The policies that are compared unless others are named.
const USUAL: [Policy; 3] = Policy::FAST;

/// A policy and a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// How huge pages are chosen.
    pub policy: Policy,
    /// When memory is released.
    pub release: Release,
}

impl Pair {
    /// These two, otherwise as it is.
    pub fn with(self, config: Config) -> Config {
        Config { policy: self.policy, release: self.release, ..config }
    }
}

/// All pairs that were asked for, policy by policy.
pub fn pairs(args: &SimArgs) -> Result<Vec<Pair>, Failure> {
    let releases = match args.release.as_deref() {
        None => vec![Release::ADAPTIVE],
        Some(names) => each_once("--release", names, Release::parse)?,
    };
    if releases.len() > RELEASES_MAX {
        return Err(Failure::refused(format!(
            "--release: {} of them are more than can be told apart; name {RELEASES_MAX} at most",
            releases.len()
        )));
    }
    let policies = match args.policy.as_deref() {
        Some(names) => each_once("--policy", names, Policy::parse)?,
        None if releases.len() > 1 => vec![USUAL[0]],
        None => USUAL.into(),
    };
    let with_all = |policy| releases.iter().map(move |release| Pair { policy, release: *release });
    Ok(policies.into_iter().flat_map(with_all).collect())
}

/// What these names mean; two that mean the same are a mistake.
fn each_once<T: PartialEq>(
    option: &str,
    names: &[String],
    parse: fn(&str) -> Result<T, Error>,
) -> Result<Vec<T>, Failure> {
    let mut all: Vec<T> = Vec::new();
    for name in names {
        let one = parse(name).map_err(|error| Failure::refused(format!("{option}: {error}")))?;
        if let Some(at) = all.iter().position(|other| *other == one) {
            let (first, again) = (names[at].trim(), name.trim());
            let what = if first == again {
                format!("'{again}' is named twice")
            } else {
                format!("'{first}' and '{again}' are the same")
            };
            return Err(Failure::refused(format!("{option}: {what}; name each once")));
        }
        all.push(one);
    }
    Ok(all)
}

/// Gives each pair the same operations.
pub fn compare<S: Operations + Send>(
    pairs: &[Pair],
    config: Config,
    operations: u64,
    source: impl Fn() -> Result<S, Failure>,
) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let about = format!("{}/{} {}", at + 1, pairs.len(), pair.policy.name());
        let bar = bar(about, operations);
        let mut told = 0;
        let mut tell = |done: u64| {
            if done - told > 100_000 {
                told = done;
                bar.iter().for_each(|bar| bar.set_position(done));
            }
        };
        let outcome = simulate(&pair.with(config), &mut source()?, &mut tell);
        outcomes.push(outcome.map_err(failed)?);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn asked(args: &[&str]) -> Result<Vec<Pair>, Failure> {
        pairs(&SimArgs::parse_from([&["sim"], args].concat()))
    }

    #[test]
    fn every_policy_comes_with_every_release() {
        let usual = asked(&[]).unwrap();
        assert_eq!(usual.iter().map(|pair| pair.policy).collect::<Vec<_>>(), USUAL);
        assert!(usual.iter().all(|pair| pair.release == Release::ADAPTIVE));
        let both = asked(&["--policy", "lfr,best-fit", "--release", "off,all,1MiB/s"]).unwrap();
        let named: Vec<String> =
            both.iter().map(|pair| format!("{} {}", pair.policy.name(), pair.release)).collect();
        assert_eq!(
            named,
            [
                "range-then-allocations off",
                "range-then-allocations all",
                "range-then-allocations adaptive=1MiB",
                "best-fit off",
                "best-fit all",
                "best-fit adaptive=1MiB"
            ]
        );
        assert_eq!(asked(&["--release", "off,on"]).unwrap().len(), 2);
        assert_eq!(asked(&["--release", "off"]).unwrap().len(), 3);
    }

    #[test]
    fn nonsense_is_refused() {
        for (args, parts) in [
            (["--policy", "worst-fit"], &["--policy: ", "'worst-fit'", "best-fit"][..]),
            (["--policy", "lfr,lfr"], &["--policy: 'lfr' is named twice"]),
            (["--policy", "lfr,range-then-allocations"], &["'lfr' and 'range-then-allocations'"]),
            (["--release", "fast"], &["--release: ", "'fast'", "256MiB"]),
            (["--release", "off,"], &["--release: ", "''"]),
            (["--release", "on,off,256MiB"], &["--release: 'on' and '256MiB' are the same"]),
            (
                ["--release", "1,10000,20000,30000,40000,50000,60000"],
                &["--release: 7", "6 at most"],
            ),
        ] {
            let failure = asked(&args).expect_err("it should be refused");
            assert_eq!(failure.code, 2);
            let message = failure.message;
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
