//! Which option belongs to which suite: what would be without effect is refused.

use crate::asked::{Asked, MODES};
use crate::registry::SUITES;
use crate::suite::Suite;
use spandrel_console::{Failure, files};

/// The options that a suite honours beside those of all suites, and what it does without them.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `--only` chooses parts of it.
    pub has_parts: bool,
    /// `--scale` makes it larger or smaller: it repeats a paper's measurements.
    pub has_scale: bool,
    /// `--trained` measures trained profiles too.
    pub can_train: bool,
    /// `--markdown` writes its tables.
    pub has_markdown: bool,
    /// When `--out` draws it.
    pub drawn: Drawn,
    /// The allocators that it measures.
    pub allocators: Allocators,
    /// Measured rounds where neither `--runs` nor `--quick` is given.
    pub runs: usize,
    /// Whether it is a part of `all`.
    pub is_in_all: bool,
}

/// When a suite has a picture. There is one file and so one picture of all suites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    /// Never.
    Never,
    /// Where it is the only suite.
    Alone,
    /// Where it is the only suite, and in `all`.
    InAll,
}

/// The allocators that a suite measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocators {
    /// All that are installed or named by `--peers`, and Spandrel in the modes of `--modes`.
    Installed,
    /// The usual ones among these: notes do not name those that are missing.
    Usual,
    /// Its own: `--peers` and `--modes` are refused.
    Own {
        /// What it measures in place of `--peers`.
        peers: &'static str,
        /// What it measures in place of `--modes`.
        modes: &'static str,
        /// Whether Spandrel is preloaded into a part of it.
        preloads: bool,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            has_parts: false,
            has_scale: false,
            can_train: false,
            has_markdown: false,
            drawn: Drawn::Never,
            allocators: Allocators::Installed,
            runs: 7,
            is_in_all: true,
        }
    }
}

type Honours = fn(&Options) -> bool;

/// Refuses options of other suites than the one that is measured.
pub fn check(asked: &Asked) -> Result<(), Failure> {
    let own = asked.suite.map(|suite| suite.options());
    let belongs: [(&str, bool, Honours); 4] = [
        ("--only", asked.only.is_some(), |of| of.has_parts),
        ("--scale", asked.scale.is_some(), |of| of.has_scale),
        ("--trained", asked.trained, |of| of.can_train),
        ("--markdown", asked.markdown.is_some(), |of| of.has_markdown),
    ];
    for (option, is_there, honours) in belongs {
        if is_there && !own.as_ref().is_some_and(honours) {
            return Err(Failure::refused(format!(
                "{option} belongs to the suite {}; leave the option out",
                names(honours)
            )));
        }
    }
    if let Some(suite) = asked.suite
        && let Allocators::Own { peers, modes, .. } = suite.options().allocators
    {
        let wrong =
            [("--peers", peers, asked.peers.is_some()), ("--modes", modes, asked.modes != MODES)];
        if let Some((option, why, _)) = wrong.iter().find(|(_, _, is_there)| *is_there) {
            let name = suite.name();
            return Err(Failure::refused(format!(
                "{option}: the suite '{name}' {why}; leave the option out"
            )));
        }
    }
    check_files(asked)
}

/// The names of some suites, as in the help of their options: those that repeat a paper come last.
fn names(of: impl Fn(&Options) -> bool) -> String {
    let mut suites: Vec<&dyn Suite> =
        SUITES.into_iter().filter(|suite| of(&suite.options())).collect();
    suites.sort_by_key(|suite| suite.options().has_scale);
    let names: Vec<String> = suites.iter().map(|suite| format!("'{}'", suite.name())).collect();
    names.join(" or ")
}

/// Whether this suite's picture is drawn.
pub fn is_drawn(asked: &Asked, suite: &dyn Suite) -> bool {
    match suite.options().drawn {
        Drawn::Never => false,
        Drawn::Alone => asked.suite.is_some(),
        Drawn::InAll => true,
    }
}

/// Refuses `--out` where it would be without effect, and files that would take the place of something else.
fn check_files(asked: &Asked) -> Result<(), Failure> {
    if asked.out.is_some() && !asked.suites().into_iter().any(|suite| is_drawn(asked, suite)) {
        return Err(Failure::refused(format!(
            "--out draws the suite {}, alone or in 'all', or the suite {}",
            names(|of| of.drawn == Drawn::InAll),
            names(|of| of.drawn == Drawn::Alone),
        )));
    }
    files::check_plot("--out", asked.out.as_deref())?;
    let (json, markdown) = (asked.json.as_deref(), asked.markdown.as_deref());
    files::check(
        &[("--json", json), ("--out", asked.out.as_deref()), ("--markdown", markdown)],
        &[],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::named;

    fn asked(suite: &str, options: Asked) -> Asked {
        Asked { suite: named(suite), ..options }
    }

    fn why(suite: &str, options: Asked) -> Option<String> {
        check(&asked(suite, options)).err().map(|failure| {
            assert_eq!(failure.code, 2);
            failure.message
        })
    }

    fn only() -> Asked {
        Asked { only: Some(vec!["larson".into()]), ..Asked::default() }
    }

    fn out() -> Asked {
        Asked { out: Some("x.svg".into()), ..Asked::default() }
    }

    fn peers() -> Asked {
        Asked { peers: Some(vec!["sys".into()]), ..Asked::default() }
    }

    #[test]
    fn what_belongs_elsewhere_is_refused_with_the_way_out() {
        for (suite, option, options) in [
            ("vec", "--only", only()),
            ("all", "--scale", Asked { scale: Some(0.5), ..Asked::default() }),
            ("heap", "--trained", Asked { trained: true, ..Asked::default() }),
            ("programs", "--markdown", Asked { markdown: Some("x.md".into()), ..Asked::default() }),
            ("heap", "--peers", peers()),
            ("heap", "--modes", Asked { modes: "mmap".into(), ..Asked::default() }),
            ("paper", "--peers", peers()),
        ] {
            let why = why(suite, options).unwrap();
            assert!(why.contains(option) && why.contains("leave the option out"), "{why}");
        }
        assert!(why("vec", out()).unwrap().contains("'heap'"));
    }

    #[test]
    fn suites_are_named_as_in_the_help() {
        let why = why("vec", only()).unwrap();
        assert!(why.contains("'programs' or 'world' or 'paper' or 'heap'"), "{why}");
    }

    #[test]
    fn what_belongs_here_is_not() {
        assert_eq!(why("heap", Asked { scale: Some(0.5), out: out().out, ..only() }), None);
        assert_eq!(why("all", out()), None);
        assert_eq!(why("programs", only()), None);
    }

    #[test]
    fn of_all_suites_one_is_drawn() {
        let is_drawn = |asked_for: &str, suite: &str| {
            is_drawn(&asked(asked_for, Asked::default()), named(suite).unwrap())
        };
        assert!(is_drawn("all", "hugepages") && is_drawn("heap", "heap"));
        assert!(!is_drawn("all", "heap") && !is_drawn("all", "paper"));
    }
}
