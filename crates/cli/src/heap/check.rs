//! `spandrel heap check`: whether a heap is sound.

use super::args::CheckArgs;
use super::failed::{copy_failed, is_damage, is_durable};
use super::repair::pages;
use super::shell::command;
use super::{bytes_of, sums_of};
use crate::progress::Progress;
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_pheap::{Error, Finding, Kind, Options, PageObjects, Standing, Survey, check_watched};
use spandrel_report::numbers::{bytes, count, counted};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Objects that nothing leads to are no damage: beyond this number of them only their count is printed.
const MOST_LOST: u64 = 16;

/// Exit code of a damaged heap.
pub const DAMAGED: u8 = 1;

/// Looks at a heap.
pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let progress = Progress::share("looking at all of it", bytes_of(path));
    let watch = progress.watcher();
    let mut told = Told { path, as_json: args.json, progress, heard: 0, lost: 0, failed: None };
    let options = Options::new().wait(args.wait.wait).compare_sums();
    let survey = options.copy_medium(path.as_os_str().as_bytes()).and_then(|medium| {
        let hear = &mut |finding: &_| told.hear(finding);
        check_watched(&medium, &[], is_durable(path), hear, Some(&watch))
    });
    if let Some(why) = told.failed {
        return Err(why);
    }
    match survey {
        Ok(survey) => told.sum(&survey),
        // The damage leaves nothing that can be looked at.
        Err(why) if is_damage(&why) => told.give_up(why),
        Err(why) => Err(copy_failed(path, why)),
    }
}

/// Writes each finding as it is found: there may be many.
struct Told<'a> {
    path: &'a Path,
    as_json: bool,
    progress: Progress,
    heard: u64,
    lost: u64,
    /// Set once the output is closed: nothing is written from then on.
    failed: Option<Failure>,
}

impl Told<'_> {
    fn hear(&mut self, finding: &Finding) {
        if self.failed.is_some() {
            return;
        }
        self.lost += u64::from(finding.kind == Kind::Lost);
        let told = match self.as_json {
            true => self.item(&as_json(finding)),
            false if finding.kind == Kind::Lost && self.lost > MOST_LOST => Ok(()),
            false => self.progress.out(line(finding)),
        };
        self.failed = told.err();
        self.heard += 1;
    }

    /// An item of the list, which begins with the first.
    fn item(&self, item: &Value) -> Result<(), Failure> {
        if self.heard == 0 {
            self.begin()?;
            return self.progress.out(item);
        }
        self.progress.out(format_args!(",{item}"))
    }

    fn begin(&self) -> Result<(), Failure> {
        let path = json!(self.path.display().to_string());
        self.progress.out(format_args!("{{\"format\":1,\"heap\":{path},\"findings\":["))
    }

    /// Ends the list; what follows it are these members of an object.
    fn end(&self, members: &Value) -> Result<(), Failure> {
        if self.heard == 0 {
            self.begin()?;
        }
        let members = members.to_string();
        self.progress.out(format_args!("],{}", members.trim_start_matches('{')))
    }

    fn sum(&self, survey: &Survey) -> Result<u8, Failure> {
        // Pages that differ leave the heap's own structures known.
        let is_sound = survey.damaged == 0 && survey.pages == 0;
        let code = if is_sound { 0 } else { DAMAGED };
        if self.as_json {
            // What was not looked at is not known.
            let known = |number: u64| (survey.damaged == 0).then_some(number);
            self.end(&json!({
                "sound": is_sound, "damaged": survey.damaged,
                "live": known(survey.live), "live_bytes": known(survey.live_bytes),
                "lost": known(survey.lost), "lost_bytes": known(survey.lost_bytes),
                "pages": survey.pages, "sums": standing_word(survey.sums),
            }))?;
            return Ok(code);
        }
        if self.lost > MOST_LOST {
            self.progress.out(format_args!("and {} more", count(self.lost - MOST_LOST)))?;
        }
        self.progress.out(format_args!(
            "{}: {}{}",
            self.path.display(),
            outcome(self.path, survey),
            standing(self.path, survey.sums),
        ))?;
        Ok(code)
    }

    fn give_up(&self, why: Error) -> Result<u8, Failure> {
        if self.as_json {
            let why = why.reason().to_string();
            self.end(&json!({"sound": false, "damaged": null, "error": why}))?;
        } else {
            self.progress.out(format_args!(
                "{}: damaged: {}; nothing else of it can be looked at; {} says whether it can be mended",
                self.path.display(),
                why.reason(),
                command("repair", self.path)
            ))?;
        }
        Ok(DAMAGED)
    }
}

/// A finding as text.
pub fn line(finding: &Finding) -> String {
    let objects = finding.objects.as_ref().map_or(String::new(), objects);
    format!("{:#012x}  {:<10}  {}{objects}", finding.at, kind(finding.kind), finding.what)
}

/// What lies on a page.
fn objects(of: &PageObjects) -> String {
    let places = counted(of.count, "object", "objects");
    let root = match (of.root, of.name) {
        (Some(_), Some(name)) => {
            format!(", among them that of the root \"{}\"", super::words::shown(name.text()))
        }
        (Some(root), None) => format!(", among them that of root {root}"),
        _ => String::new(),
    };
    format!("; it has {places} of {}, the first at {:#x}{root}", bytes(of.bytes as f64), of.at)
}

/// Whether all pages were compared with sums, as a word.
fn standing_word(of: Standing) -> &'static str {
    match of {
        Standing::Absent => "absent",
        Standing::Compared => "compared",
        Standing::Stale => "stale",
        Standing::Foreign => "foreign",
        Standing::Busy => "busy",
    }
}

/// Why pages were not compared with the sums beside a heap.
fn standing(path: &Path, of: Standing) -> String {
    let why = match of {
        Standing::Absent => return String::new(),
        Standing::Compared => return "; all pages were compared with their sums".into(),
        Standing::Stale => "is of another state of the heap",
        Standing::Foreign => "is no file of this heap, or is damaged at its beginning",
        Standing::Busy => "changes, as a process has the heap open",
    };
    format!("; {} {why}: pages were not compared with their sums", sums_of(path).display())
}

fn kind(of: Kind) -> &'static str {
    match of {
        Kind::Damage => "damage",
        Kind::Dangling => "dangling",
        Kind::UsedTwice => "used twice",
        Kind::Lost => "note",
        Kind::Mended => "mended",
        Kind::Page => "page",
    }
}

fn as_json(finding: &Finding) -> Value {
    let kind = match finding.kind {
        Kind::Damage => "damage",
        Kind::Dangling => "dangling",
        Kind::UsedTwice => "used_twice",
        Kind::Lost => "lost",
        Kind::Mended => "mended",
        Kind::Page => "page",
    };
    let mut item = json!({"at": finding.at, "kind": kind, "what": finding.what});
    if let Some(on) = finding.objects {
        item["objects"] = json!({
            "at": on.at, "bytes": on.bytes, "count": on.count, "root": on.root,
            "name": on.name.map(|name| name.text().to_string()),
        });
    }
    item
}

fn outcome(path: &Path, survey: &Survey) -> String {
    if survey.damaged == 0 && survey.pages > 0 {
        return pages(path, survey.pages);
    }
    if survey.damaged > 0 {
        return format!(
            "damaged, in {}; {} says how it can be mended",
            counted(survey.damaged, "place", "places"),
            command("repair", path)
        );
    }
    let live = format!(
        "sound; {} can be reached ({})",
        counted(survey.live, "object", "objects"),
        bytes(survey.live_bytes as f64)
    );
    if survey.lost == 0 {
        return live;
    }
    if is_durable(path) {
        return format!(
            "{live}; no address that a check follows leads to {} ({}): they stay until the program frees them",
            counted(survey.lost, "object", "objects"),
            bytes(survey.lost_bytes as f64),
        );
    }
    if survey.null_named > 0 {
        return format!(
            "{live}; nothing leads to {} ({}), and {} null: if objects are missing, take a copy of the heap \
             before {} frees these",
            counted(survey.lost, "object", "objects"),
            bytes(survey.lost_bytes as f64),
            counted(survey.null_named, "root with a name is", "roots with names are"),
            command("gc", path),
        );
    }
    format!(
        "{live}; nothing leads to {} ({}), which {} frees",
        counted(survey.lost, "object", "objects"),
        bytes(survey.lost_bytes as f64),
        command("gc", path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_their_place_and_meaning() {
        let finding = Finding { at: 0x9_2040, kind: Kind::Dangling, what: "a root", objects: None };
        assert_eq!(line(&finding), "0x0000092040  dangling    a root");
        assert_eq!(as_json(&finding).to_string().matches("598080").count(), 1);
    }
}
