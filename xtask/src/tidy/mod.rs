//! The rules of the house as a test. One file per rule; this one collects the files and the
//! findings.

mod headers;
mod length;
mod licences;
mod rooms;
mod safety;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One place where the tree breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What was found, why that is not wanted, what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// What a check of the whole tree came to.
pub struct Report {
    /// Findings in the order of the files.
    pub findings: Vec<Finding>,
    /// How many text files were read.
    pub files: usize,
    /// How many packages of the workspace were held against the table.
    pub rooms: usize,
}

/// A text file of the tree.
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its contents.
    pub text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// Checks every rule on the tree below `root`.
pub fn check(root: &Path) -> Result<Report, String> {
    let files = read_all(root)?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(length::check(file));
        findings.extend(headers::check(file));
        findings.extend(safety::check(file));
        findings.extend(words::check(file));
        findings.extend(licences::check(file));
    }
    let rooms = rooms::check(root, &files, &mut findings)?;
    findings.sort();
    Ok(Report { findings, files: files.len(), rooms })
}

/// All text files that are or could be committed. Binary ones have no lines to talk about.
fn read_all(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for path in list(root)? {
        // A file that git still lists may have been deleted in the working tree.
        let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if !text.contains('\0') {
            files.push(File { path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// What git tracks or would track; without git, everything but build output.
fn list(root: &Path) -> Result<Vec<String>, String> {
    let out = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    match out {
        Ok(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout)
            .split('\0')
            .filter(|p| !p.is_empty())
            .map(str::to_string)
            .collect()),
        _ => {
            let mut paths = Vec::new();
            walk(root, Path::new(""), &mut paths)?;
            Ok(paths)
        }
    }
}

fn walk(root: &Path, below: &Path, paths: &mut Vec<String>) -> Result<(), String> {
    let directory = root.join(below);
    let entries =
        std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", directory.display()))?;
        let name = entry.file_name();
        let path: PathBuf = below.join(&name);
        let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
        if kind.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, paths)?;
            }
        } else if kind.is_file() {
            paths.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_name_the_place() {
        let finding = file("a/b.rs", "").finding(7, "what");
        assert_eq!(finding.to_string(), "a/b.rs:7: what");
    }

    #[test]
    fn a_tree_without_git_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/x.rs", "target/y.rs", ".git/z", "b.md", "a/binary"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, if path.ends_with("binary") { "\0" } else { "" }).unwrap();
        }
        let mut paths = Vec::new();
        walk(dir.path(), Path::new(""), &mut paths).unwrap();
        paths.sort();
        assert_eq!(paths, ["a/binary", "a/x.rs", "b.md"]);
    }

    #[test]
    fn this_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let report = check(root).unwrap();
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
