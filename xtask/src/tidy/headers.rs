//! What the head of a crate says: what the room is for, and that it needs no standard library.

use super::rooms::{self, Use};
use super::{File, Finding};
use crate::source::Source;

pub fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !matches!(file.name(), "lib.rs" | "main.rs") {
        return findings;
    }
    let first = file.text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    if !first.starts_with("//!") {
        findings.push(file.finding(
            1,
            "no `//!` header; a reader starts here: say what this is for, which invariants hold \
             and what it must never know",
        ));
    }
    if is_below_tools(&file.path) && !has_no_std(&file.text) {
        findings.push(file.finding(
            1,
            "no `#![no_std]`; below the tools the compiler is to say that nothing allocates: add \
             it, or move what needs the standard library to a tool",
        ));
    }
    findings
}

/// Is this the root of a crate that may run while memory is being allocated?
fn is_below_tools(path: &str) -> bool {
    let room = path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/src/lib.rs"));
    rooms::TABLE.iter().any(|(name, uses)| Some(*name) == room && matches!(uses, Use::Rooms(_)))
}

fn has_no_std(text: &str) -> bool {
    // A model checker needs the standard library; it is never in a build for use.
    let forms = ["#![no_std]", "#![cfg_attr(not(loom), no_std)]"];
    Source::new(text).code.lines().any(|line| forms.contains(&line.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&file(path, text)).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn roots_need_a_header() {
        assert_eq!(messages("crates/cli/src/main.rs", "\n//! The command.\nfn main() {}"), [""; 0]);
        assert!(messages("crates/cli/src/main.rs", "use x;\n//! late")[0].contains("header"));
        assert!(messages("bench/worker/src/main.rs", "")[0].contains("header"));
        assert_eq!(messages("crates/cli/src/run.rs", "use x;"), [""; 0]);
    }

    #[test]
    fn rooms_below_the_tools_need_no_std() {
        let good = "//! Pages.\n#![no_std]\n";
        assert_eq!(messages("crates/pages/src/lib.rs", good), [""; 0]);
        let modelled = "//! Locks.\n#![cfg_attr(not(loom), no_std)]\n";
        assert!(messages("crates/sync/src/lib.rs", modelled).is_empty());
        let said_only = "//! Pages.\n// #![no_std]\n";
        assert!(messages("crates/pages/src/lib.rs", said_only)[0].contains("#![no_std]"));
        assert_eq!(messages("tests/src/lib.rs", "//! Tests.\n"), [""; 0]);
        assert_eq!(messages("crates/sim/src/lib.rs", "//! A tool.\n"), [""; 0]);
    }
}
