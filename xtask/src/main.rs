//! Chores of this repository that need more than a shell line.
//!
//! `cargo xtask tidy` holds the tree against the rules of the house that neither the compiler nor
//! clippy knows: which room may use which, how long a file may be, what a header must say, what
//! `unsafe` must be accompanied by, which words stay out, and under which licence everything is.
//!
//! This room must never change a file: it only reads, and says what it found.

mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [DIRECTORY]   check the rules of the house";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => report(&root()),
        ["tidy", directory] if !directory.starts_with('-') => report(Path::new(directory)),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The workspace that this program was built from.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn report(root: &Path) -> ExitCode {
    match tidy::check(root) {
        Err(message) => {
            eprintln!("tidy: {message}");
            ExitCode::from(2)
        }
        Ok(report) if report.findings.is_empty() => {
            println!("tidy: {} files, {} rooms, nothing to say", report.files, report.rooms);
            ExitCode::SUCCESS
        }
        Ok(report) => {
            for finding in &report.findings {
                println!("{finding}");
            }
            println!("tidy: {} findings in {} files", report.findings.len(), report.files);
            ExitCode::FAILURE
        }
    }
}
