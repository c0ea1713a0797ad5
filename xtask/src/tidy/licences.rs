//! Every package says under which licence it is, as an SPDX expression, and it is the same one.

use super::{File, Finding};

/// The licence of everything here.
const LICENCE: &str = "MIT OR Apache-2.0";

pub fn check(file: &File) -> Vec<Finding> {
    if file.name() != "Cargo.toml" {
        return Vec::new();
    }
    let manifest: toml::Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + file.text[..at].matches('\n').count();
            return vec![file.finding(line, format!("not a manifest: {}", error.message()))];
        }
    };
    let mut findings = Vec::new();
    for (table, heading) in [
        (manifest.get("package"), "[package]"),
        (manifest.get("workspace").and_then(|w| w.get("package")), "[workspace.package]"),
    ] {
        let Some(table) = table else { continue };
        let licence = table.get("license");
        let inherited =
            licence.and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool) == Some(true);
        if inherited || licence.and_then(toml::Value::as_str) == Some(LICENCE) {
            continue;
        }
        let line = file.text.lines().position(|l| l.trim() == heading).map_or(1, |at| at + 1);
        findings.push(file.finding(
            line,
            format!(
                "{heading} is not under `{LICENCE}`; all packages here are: set `license` to it, \
                 or `license.workspace = true`"
            ),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        check(&file("x/Cargo.toml", text))
    }

    #[test]
    fn the_licence_may_be_said_or_inherited() {
        assert!(found("[package]\nname = \"x\"\nlicense = \"MIT OR Apache-2.0\"").is_empty());
        assert!(found("[package]\nname = \"x\"\nlicense.workspace = true").is_empty());
        assert!(found("[workspace]\nmembers = []").is_empty());
        assert!(check(&file("x/other.toml", "[package]")).is_empty());
    }

    #[test]
    fn a_missing_or_other_licence_is_found() {
        assert_eq!(found("\n[package]\nname = \"x\"")[0].line, 2);
        assert_eq!(found("[package]\nlicense = \"MIT\"").len(), 1);
        assert_eq!(found("[workspace.package]\nlicense = \"GPL-3.0-only\"").len(), 1);
        assert_eq!(found("[package]\nlicense.workspace = false").len(), 1);
        assert!(found("[package\n")[0].message.starts_with("not a manifest"));
    }
}
