//! All suites, a line each, in the order of the help. Those of `all` are measured in this order.

use crate::apps::Apps;
use crate::brug::Brug;
use crate::makalu::Makalu;
use crate::mangosteen::Mangosteen;
use crate::micro::{Copies, Dispatch, Fig2, Startup, cases};
use crate::programs::Programs;
use crate::redis::Redis;
use crate::suite::Suite;
use crate::temeraire::Temeraire;
use crate::world::World;

/// The suites.
pub static SUITES: [&dyn Suite; 19] = [
    &cases::REALLOC,
    &cases::APPEND,
    &cases::VEC,
    &cases::ARROW,
    &Copies,
    &Fig2,
    &cases::PAIR,
    &cases::SMALL,
    &cases::MIXED,
    &Startup,
    &Dispatch,
    &Temeraire,
    &Redis,
    &Programs,
    &Brug,
    &Makalu,
    &Mangosteen,
    &Apps,
    &World,
];

/// What stands for many suites: its name, and a line of the help.
pub const ALL: (&str, &str) = ("all", "everything but durable, apps and world");

/// The suite of a name.
pub fn named(name: &str) -> Option<&'static dyn Suite> {
    SUITES.into_iter().find(|suite| suite.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_what_all_leaves_out_is_said() {
        let mut names: Vec<&str> = SUITES.iter().map(|suite| suite.name()).chain([ALL.0]).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let left_out: Vec<&str> = SUITES
            .iter()
            .filter(|suite| !suite.options().is_in_all)
            .map(|suite| suite.name())
            .collect();
        let (last, others) = left_out.split_last().expect("some are left out");
        assert_eq!(ALL.1, format!("everything but {} and {last}", others.join(", ")));
    }
}
