//! One direction of travel: a room knows only the rooms below it.
//!
//! The table is written twice, here for the machine and in the architecture page for people, and
//! both must agree with each other and with what cargo says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

use super::{File, Finding};

/// What a room may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// These rooms, and nothing else of the workspace.
    Rooms(&'static [&'static str]),
    /// The same for a tool, where the standard library is at home.
    Tool(&'static [&'static str]),
    /// Other tools: every room, the standard library, and big dependencies.
    Anything,
}

/// The rooms from the ground up. A room may be used only by those that stand below it here.
#[rustfmt::skip]
pub const TABLE: [(&str, Use); 35] = [
    ("pages",    Use::Rooms(&[])),
    ("os",       Use::Rooms(&["pages"])),
    ("sync",     Use::Rooms(&["os", "pages"])),
    ("pageheap", Use::Rooms(&["pages"])),
    ("recorder", Use::Rooms(&["sync", "os", "pages"])),
    ("slabs",    Use::Rooms(&["pageheap", "recorder", "sync", "os", "pages"])),
    ("backends", Use::Rooms(&["slabs", "sync", "os", "pages"])),
    ("policy",   Use::Rooms(&["pages"])),
    ("adaptive", Use::Rooms(&["policy", "backends", "recorder", "sync", "os", "pages"])),
    ("redolog",  Use::Rooms(&["pages"])),
    ("pmem",     Use::Rooms(&["redolog", "sync", "os", "pages"])),
    ("pheap",    Use::Rooms(&["pmem", "sync", "os", "pages"])),
    ("derive",   Use::Tool(&["pheap"])),
    ("capture",  Use::Rooms(&["os", "pages"])),
    ("durable",  Use::Rooms(&["capture", "redolog", "pheap", "pmem", "sync", "os", "pages"])),
    ("spandrel", Use::Rooms(&["adaptive", "durable", "capture", "redolog", "pmem", "pheap", "derive", "policy", "backends", "sync", "os", "pages"])),
    ("capi",     Use::Rooms(&["adaptive", "policy", "backends", "sync", "os", "pages"])),
    ("capi-heap", Use::Rooms(&["pheap", "os", "pages"])),
    ("capi-durable", Use::Tool(&["spandrel", "durable", "capture", "pheap", "pmem", "os", "pages"])),
    ("adapter",  Use::Tool(&[])),
    ("capi-program", Use::Tool(&["adapter", "capi-durable", "spandrel", "durable", "capture", "pheap", "pmem", "sync", "os", "pages"])),
    ("sim",      Use::Tool(&["pageheap", "pages"])),
    ("report",   Use::Tool(&["pages"])),
    ("trace",    Use::Tool(&["sim", "recorder", "pages"])),
    ("console",  Use::Tool(&["report"])),
    ("measure",  Use::Tool(&["console", "report", "policy", "os", "pages"])),
    ("harness",  Use::Tool(&["measure", "console", "sim", "report"])),
    ("cli",      Use::Anything),
    ("stores",   Use::Tool(&[])),
    ("worker",   Use::Anything),
    ("kvserver", Use::Tool(&["spandrel"])),
    ("faults",   Use::Tool(&[])),
    ("histories", Use::Tool(&[])),
    ("tests",    Use::Anything),
    ("xtask",    Use::Anything),
];

/// The tests of any room may use them.
const FOR_TESTS: [&str; 2] = ["faults", "histories"];

const PAGE: &str = "docs/ARCHITECTURE.md";
const HEADING: &str = "## Rooms";

/// A package of the workspace and the rooms that it uses.
struct Package {
    room: String,
    manifest: String,
    uses: Vec<(String, &'static str)>,
}

/// Holds the workspace and the page against the table; returns how many packages there are.
pub fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Result<usize, String> {
    let packages = packages(root)?;
    for package in &packages {
        let text = files.iter().find(|f| f.path == package.manifest).map_or("", |f| &f.text);
        findings.extend(check_package(package, text));
    }
    if let Some(page) = files.iter().find(|f| f.path == PAGE) {
        let present: BTreeSet<&str> = packages.iter().map(|p| p.room.as_str()).collect();
        findings.extend(check_page(page, &present));
    }
    Ok(packages.len())
}

/// The name of a package's room.
fn room(package: &str) -> &str {
    package.strip_prefix("spandrel-").unwrap_or(package)
}

fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let members: Vec<_> = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|p| p.name.as_str()).collect();
    let root = metadata.workspace_root.as_std_path();
    Ok(members
        .iter()
        .map(|package| Package {
            room: room(&package.name).to_string(),
            manifest: package
                .manifest_path
                .as_std_path()
                .strip_prefix(root)
                .unwrap_or(package.manifest_path.as_std_path())
                .to_string_lossy()
                .into_owned(),
            uses: package
                .dependencies
                .iter()
                .filter(|d| names.contains(d.name.as_str()))
                .map(|d| (room(&d.name).to_string(), kind(d.kind)))
                .collect(),
        })
        .collect())
}

fn kind(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::Development => "dev-dependency",
        DependencyKind::Build => "build-dependency",
        _ => "dependency",
    }
}

fn check_package(package: &Package, manifest: &str) -> Vec<Finding> {
    let finding = |line, message| Finding { path: package.manifest.clone(), line, message };
    let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == package.room) else {
        return vec![finding(
            1,
            format!(
                "the room `{}` is not in the table; decide what it may use and write it into \
                 `xtask/src/tidy/rooms.rs` and {PAGE}",
                package.room
            ),
        )];
    };
    let (Use::Rooms(allowed) | Use::Tool(allowed)) = allowed else { return Vec::new() };
    let mut findings = Vec::new();
    for (used, kind) in &package.uses {
        let is_for_tests = *kind == "dev-dependency" && FOR_TESTS.contains(&used.as_str());
        if is_for_tests || allowed.contains(&used.as_str()) {
            continue;
        }
        let line = manifest.lines().position(|l| {
            let key = l.split(['=', '.', ' ']).next().unwrap_or("").trim_matches('"');
            !key.is_empty() && room(key) == used
        });
        let may = if allowed.is_empty() { "nothing".into() } else { allowed.join(", ") };
        findings.push(finding(
            line.map_or(1, |l| l + 1),
            format!(
                "{kind} on `{used}`; `{}` may use {may}: move the code to the room that it belongs \
                 to, or change the table here and in {PAGE} and say why",
                package.room
            ),
        ));
    }
    findings
}

/// Compares the page's table with ours. A room without a line of code yet may be missing there.
fn check_page(page: &File, present: &BTreeSet<&str>) -> Vec<Finding> {
    let Some(heading) = page.text.lines().position(|l| l.trim_end() == HEADING) else {
        return vec![page.finding(
            1,
            format!("no section `{HEADING}`; readers look for the table of rooms there: add it"),
        )];
    };
    let mut findings = Vec::new();
    let mut seen = BTreeMap::new();
    let section = page.text.lines().enumerate().skip(heading + 1);
    for (index, line) in section.take_while(|(_, l)| !l.starts_with("## ")) {
        let Some((name, uses)) = row(line) else { continue };
        seen.insert(name.clone(), index + 1);
        let Some((_, ours)) = TABLE.iter().find(|(room, _)| *room == name) else {
            findings.push(page.finding(
                index + 1,
                format!("the room `{name}` is not in `xtask/src/tidy/rooms.rs`; add it there"),
            ));
            continue;
        };
        let expected = described(*ours);
        if uses != expected {
            findings.push(page.finding(
                index + 1,
                format!(
                    "`{name}` uses {} here and {} in `xtask/src/tidy/rooms.rs`; one of them is \
                     wrong: make them agree",
                    join(&uses),
                    join(&expected)
                ),
            ));
        }
    }
    for (name, _) in TABLE.iter().filter(|(n, _)| present.contains(n) && !seen.contains_key(*n)) {
        findings.push(page.finding(
            heading + 1,
            format!("the table has no row for `{name}`; every room has one: add it"),
        ));
    }
    findings
}

/// A row of the table: the room and what it may use. Headings and rulers are no rows.
fn row(line: &str) -> Option<(String, BTreeSet<String>)> {
    let mut cells = line.trim().strip_prefix('|')?.split('|').map(|c| c.trim().replace('`', ""));
    let (name, uses) = (cells.next()?, cells.next()?);
    if name.is_empty() || name.chars().all(|c| "-: ".contains(c)) || name == "room" {
        return None;
    }
    let uses = uses
        .split([',', ' '])
        .filter(|u| !u.is_empty() && *u != "-" && *u != "nothing")
        .map(str::to_string)
        .collect();
    Some((name, uses))
}

fn described(uses: Use) -> BTreeSet<String> {
    match uses {
        Use::Rooms(rooms) | Use::Tool(rooms) => rooms.iter().map(|r| (*r).to_string()).collect(),
        Use::Anything => BTreeSet::from(["anything".to_string()]),
    }
}

fn join(uses: &BTreeSet<String>) -> String {
    match uses.len() {
        0 => "nothing".into(),
        _ => uses.iter().cloned().collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn the_table_goes_one_way() {
        for (index, (name, uses)) in TABLE.iter().enumerate() {
            let (Use::Rooms(uses) | Use::Tool(uses)) = uses else { continue };
            for used in *uses {
                let below = TABLE.iter().position(|(room, _)| room == used);
                assert!(below.is_some_and(|b| b < index), "{name} uses {used}");
            }
        }
    }

    fn package(room: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|u| ((*u).to_string(), "dependency")).collect();
        Package { room: room.into(), manifest: format!("crates/{room}/Cargo.toml"), uses }
    }

    #[test]
    fn forbidden_uses_are_found_with_their_line() {
        let manifest = "[dependencies]\nspandrel-pages.workspace = true\nspandrel-sync = { path = \"../sync\" }\n";
        let findings = check_package(&package("os", &["pages", "sync"]), manifest);
        assert_eq!(findings.len(), 1);
        let text = findings[0].to_string();
        assert!(
            text.starts_with("crates/os/Cargo.toml:3: dependency on `sync`; `os` may use pages")
        );
        assert_eq!(check_package(&package("cli", &["pages", "capi"]), ""), []);
        assert!(
            check_package(&package("pages", &["os"]), "")[0].message.contains("may use nothing")
        );
    }

    #[test]
    fn an_unknown_room_is_found() {
        let findings = check_package(&package("attic", &[]), "");
        assert!(findings[0].message.contains("not in the table"));
        assert_eq!(room("spandrel-attic"), "attic");
        assert_eq!(room("spandrel"), "spandrel");
    }

    const GOOD: &str = "# A\n## Rooms\n\n| room | may use |\n|---|:--|\n| pages | - |\n| `os` | pages |\n\
                        | sync | pages, os | what it is for |\n| cli | anything |\n## Next\n| os | - |\n";

    fn page(text: &str, present: &[&str]) -> Vec<(usize, String)> {
        let present = present.iter().copied().collect();
        let findings = check_page(&file(PAGE, text), &present);
        findings.into_iter().map(|f| (f.line, f.message)).collect()
    }

    #[test]
    fn a_page_that_agrees_passes() {
        assert_eq!(page(GOOD, &["pages", "os", "sync", "cli"]), []);
    }

    #[test]
    fn a_page_that_differs_is_found() {
        let found = page(&GOOD.replace("pages, os", "pages"), &[]);
        assert_eq!(found[0].0, 8);
        assert!(found[0].1.contains("`sync` uses pages here and os, pages in"), "{found:?}");
        assert!(page(GOOD, &["policy"])[0].1.contains("no row for `policy`"));
        let more = GOOD.replace("| cli |", "| attic |");
        assert!(page(&more, &[])[0].1.contains("`attic` is not in"));
        assert!(page("# A\n", &[])[0].1.contains("no section"));
        assert!(page(&GOOD.replace("anything", "pages"), &[])[0].1.contains("anything in"));
    }

    #[test]
    fn a_workspace_is_read_from_cargo() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
        let manifest = |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
        write("crates/os/Cargo.toml", &manifest("spandrel-os"));
        write("crates/os/src/lib.rs", "");
        let wrong = "[dev-dependencies]\nspandrel-os = { path = \"../os\" }\n";
        write("crates/pages/Cargo.toml", &(manifest("spandrel-pages") + wrong));
        write("crates/pages/src/lib.rs", "");

        let mut findings = Vec::new();
        assert_eq!(check(dir.path(), &[], &mut findings), Ok(2));
        assert_eq!(findings.len(), 1);
        let text = findings[0].to_string();
        assert!(text.starts_with("crates/pages/Cargo.toml:1: dev-dependency on `os`"), "{text}");
    }
}
