//! Which option belongs to which suite: what would be without effect is refused.

use crate::args::{BenchArgs, Suite};
use spandrel_console::Failure;
use spandrel_console::files;

/// Suites that say themselves who is measured, and who that is.
const CONTENDERS: [(Suite, [&str; 2]); 2] = [
    (
        Suite::Paper,
        ["measures the paper's own allocators, each built into a worker", "measures every mode"],
    ),
    (
        Suite::Heap,
        [
            "measures the recoverable heap beside sys, jemalloc, mimalloc and libpmemobj",
            "measures the recoverable heap, which has no modes",
        ],
    ),
];

/// Refuses options of other suites than the one that was asked for.
pub fn check(args: &BenchArgs) -> Result<(), Failure> {
    let belongs: [(&str, bool, &[Suite]); 4] = [
        (
            "--only",
            args.only.is_some(),
            &[Suite::Programs, Suite::World, Suite::Paper, Suite::Heap],
        ),
        ("--scale", args.scale.is_some(), &[Suite::Paper, Suite::Heap]),
        ("--trained", args.trained, &[Suite::Paper]),
        ("--markdown", args.markdown.is_some(), &[Suite::World, Suite::Paper, Suite::Heap]),
    ];
    for (option, is_there, suites) in belongs {
        if is_there && !suites.contains(&args.suite) {
            let names: Vec<String> =
                suites.iter().map(|suite| format!("'{}'", suite.about().0)).collect();
            return Err(Failure::refused(format!(
                "{option} belongs to the suite {}; leave the option out",
                names.join(" or ")
            )));
        }
    }
    if let Some((suite, [peers, modes])) = CONTENDERS.iter().find(|(s, _)| *s == args.suite) {
        let wrong =
            [("--peers", peers, args.peers.is_some()), ("--modes", modes, args.modes != "auto")];
        if let Some((option, why, _)) = wrong.iter().find(|(_, _, is_there)| *is_there) {
            let name = suite.about().0;
            return Err(Failure::refused(format!(
                "{option}: the suite '{name}' {why}; leave the option out"
            )));
        }
    }
    check_files(args)
}

/// Whether a picture that was asked for is this suite's. There is one file and so one picture: of all
/// suites that of the heap's life.
pub fn is_drawn(asked: Suite, suite: Suite) -> bool {
    suite == Suite::Hugepages || (suite == asked && matches!(suite, Suite::Paper | Suite::Heap))
}

/// Refuses `--out` where it would be without effect, and files that would take the place of something else.
fn check_files(args: &BenchArgs) -> Result<(), Failure> {
    let all = matches!(args.suite, Suite::All | Suite::Hugepages);
    if args.out.is_some() && !all && !is_drawn(args.suite, args.suite) {
        return Err(Failure::refused(
            "--out draws the suite 'hugepages', alone or in 'all', or the suite 'paper' or 'heap'",
        ));
    }
    files::check_plot("--out", args.out.as_deref())?;
    let (json, markdown) = (args.json.as_deref(), args.markdown.as_deref());
    files::check(&[("--json", json), ("--out", args.out.as_deref()), ("--markdown", markdown)], &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn why(words: &[&str]) -> Option<String> {
        let args = BenchArgs::parse_from([&["bench"], words].concat());
        check(&args).err().map(|failure| {
            assert_eq!(failure.code, 2);
            failure.message
        })
    }

    #[test]
    fn what_belongs_elsewhere_is_refused_with_the_way_out() {
        for words in [
            &["vec", "--only", "larson"][..],
            &["all", "--scale", "0.5"],
            &["heap", "--trained"],
            &["programs", "--markdown", "x.md"],
            &["heap", "--peers", "sys"],
            &["heap", "--modes", "mmap"],
            &["paper", "--peers", "sys"],
        ] {
            let why = why(words).unwrap();
            assert!(why.contains(words[1]) && why.contains("leave the option out"), "{why}");
        }
        assert!(why(&["vec", "--out", "x.svg"]).unwrap().contains("'heap'"));
    }

    #[test]
    fn what_belongs_here_is_not() {
        let mine = ["heap", "--only", "larson", "--scale", "0.5", "--out", "x.svg"];
        assert_eq!(why(&mine), None);
        assert_eq!(why(&["all", "--out", "x.svg"]), None);
        assert_eq!(why(&["programs", "--only", "larson"]), None);
    }

    #[test]
    fn of_all_suites_one_is_drawn() {
        assert!(is_drawn(Suite::All, Suite::Hugepages) && is_drawn(Suite::Heap, Suite::Heap));
        assert!(!is_drawn(Suite::All, Suite::Heap) && !is_drawn(Suite::All, Suite::Paper));
    }
}
