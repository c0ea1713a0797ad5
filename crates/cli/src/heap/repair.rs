//! `spandrel heap repair`: what is damaged is put right or cleared, in a copy first.

use super::args::RepairArgs;
use super::check::{DAMAGED, line};
use super::failed::{copy_failed, failed, is_damage, is_durable, text as reason};
use super::shell::command;
use super::{beside, bytes_of, image, log_of};
use crate::progress::Progress;
use spandrel_console::Failure;
use spandrel_console::files::not_written;
use spandrel_console::say;
use spandrel_pheap::{
    Error, Finding, Kind, Media, Options, Repaired, Standing, Survey, check_watched, repair_watched,
};
use spandrel_report::numbers::counted;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mends a heap, or says how.
pub fn run(args: &RepairArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let options = match args.forget_log {
        true => Options::new().forget_log(),
        false => Options::new(),
    };
    let copied = |options: Options<'static>| {
        options.wait(args.wait.wait).compare_sums().copy_medium(path.as_os_str().as_bytes())
    };
    if args.forget_log && is_durable(path) {
        return Err(Failure::refused(format!(
            "{}: {}",
            path.display(),
            reason(path, Error::MissingLog)
        )));
    }
    // A log that fits is not given up. One copy at a time: a fixed heap's has the heap's address.
    let gives_up = args.forget_log && copied(Options::new()).is_err();
    let copy = match copied(options) {
        Ok(copy) => copy,
        // The lines that tie the heap to its log are damaged: they are made anew where the log is given up.
        Err(why) if is_damage(&why) && copied(options.forget_log()).is_ok() => {
            say::out(format_args!(
                "{}: {}; use the heap as the file has it: {}",
                path.display(),
                why.reason(),
                command("repair --forget-log", path)
            ))?;
            return Ok(DAMAGED);
        }
        Err(why) => return hopeless(path, why),
    };
    match look(path, &copy) {
        // No repair makes up for missing bytes.
        Err(why) if !is_damage(&why) || matches!(why, Error::Truncated { .. }) => {
            return hopeless(path, why);
        }
        Ok(survey) if survey.damaged == 0 && !gives_up && survey.pages > 0 && !args.accept_sums => {
            say::out(format_args!("{}: {}", path.display(), pages(path, survey.pages)))?;
            return Ok(DAMAGED);
        }
        Ok(survey) if survey.damaged == 0 && !gives_up && survey.pages == 0 => {
            say::out(format_args!("{}: sound; there is nothing to mend", path.display()))?;
            return Ok(0);
        }
        // A heap of which nothing can be looked at is among these: both of its records may be mended.
        _ => {}
    }
    if args.write {
        // The file may have to be mapped at the address of the copy.
        drop(copy);
        let options = if args.accept_sums { options.accept_sums() } else { options };
        return write(
            path,
            options,
            (!args.no_backup, args.forget_log, gives_up, args.accept_sums),
        );
    }
    match mend(path, &copy)? {
        Err(why) => hopeless(path, why),
        Ok((repaired, survey)) => {
            let words =
                if args.forget_log { "repair --write --forget-log" } else { "repair --write" };
            let after = match survey.damaged {
                0 if survey.pages > 0 => format!(
                    "{} does so; {} not what the sums say as long as that is not done",
                    command(words, path),
                    counted(survey.pages, "page is", "pages are")
                ),
                0 => format!("{} does so", command(words, path)),
                left => format!("{} would be left", counted(left, "damage", "damages")),
            };
            say::out(format_args!(
                "{}: {}; {after}",
                path.display(),
                done(&repaired, gives_up, "would be ")
            ))?;
            Ok(DAMAGED)
        }
    }
}

/// Mends the file.
fn write(
    path: &Path,
    options: Options<'_>,
    (keeps, forgets_log, gives_up, accepts): (bool, bool, bool, bool),
) -> Result<u8, Failure> {
    let backup = beside(path, ".before-repair");
    let backups = [log_of(&backup), backup];
    if let Some(there) = backups.iter().find(|file| keeps && file.symlink_metadata().is_ok()) {
        return Err(Failure::refused(format!(
            "{}: it is there already, and may be the better heap; move it away, or take --no-backup",
            there.display()
        )));
    }
    let aside = beside(path, ".bad");
    if forgets_log && aside.symlink_metadata().is_ok() {
        return Err(Failure::refused(format!(
            "{}: it is there already, and may be a log that was set aside before; move it away",
            aside.display()
        )));
    }
    // First: to open the medium already changes the file, and sets a log aside.
    let mut kept = if keeps { back_up(path, gives_up)? } else { Vec::new() };
    let before = state(path);
    // The medium, and not the heap: opening the heap changes it.
    let medium = options.open_medium(path.as_os_str().as_bytes());
    let is_set_aside = gives_up && aside.symlink_metadata().is_ok();
    if medium.is_err() && state(path) == before && !is_set_aside {
        // Of what did not change no copy is needed.
        kept.drain(..).for_each(|file| drop(std::fs::remove_file(file)));
    }
    kept.extend(is_set_aside.then_some(aside));
    let kept = as_it_was(&kept);
    let medium =
        medium.map_err(|why| Failure::refused(format!("{}{kept}", failed(path, why).message)))?;
    match mend(path, &medium)? {
        Err(why) if is_damage(&why) => {
            say::out(format_args!("{}: {}{kept}", path.display(), reason(path, why)))?;
            Ok(DAMAGED)
        }
        Err(why) => Err(Failure::refused(format!("{}{kept}", failed(path, why).message))),
        Ok((repaired, survey)) => {
            let (now, code) = match survey.damaged {
                0 if survey.pages > 0 => (pages(path, survey.pages), DAMAGED),
                // The mark bits of a durable state are exact: it is not recovered by reachability.
                0 if repaired.is_closed || is_durable(path) => ("it is sound now".to_string(), 0),
                0 => (RECOVERED.to_string(), 0),
                left => (format!("{} left", counted(left, "damage is", "damages are")), DAMAGED),
            };
            let mut done = done(&repaired, gives_up, "");
            if accepts && survey.sums == Standing::Compared {
                done = format!("the sums of all pages were computed again; {done}");
            }
            say::out(format_args!("{}: {done}; {now}{kept}", path.display()))?;
            Ok(code)
        }
    }
}

/// Says that pages are not what their sums say, which no repair mends.
pub fn pages(path: &Path, count: u64) -> String {
    format!(
        "{} not what the sums say; no repair brings back what was stored there: use a copy of the heap, or take it \
         as it is with {}",
        counted(count, "page is", "pages are"),
        command("repair --accept-sums --write", path)
    )
}

/// What is left to do where more was lost than sums tell.
const RECOVERED: &str = "it is to be recovered when it is opened; open it with the program that has its types, \
     before 'spandrel heap gc'";

/// What a repair has done, or would do.
fn done(of: &Repaired, gives_up: bool, would_be: &str) -> String {
    let mut parts = Vec::new();
    if gives_up {
        parts.push(format!("the log {would_be}given up, and the heap taken as the file has it"));
    }
    if of.exact > 0 {
        let places = counted(of.exact, "place", "places");
        parts.push(format!("{places} {would_be}put right as before the damage"));
    }
    if of.cleared > 0 {
        parts.push(format!("{} {would_be}cleared", counted(of.cleared, "damage", "damages")));
    }
    if of.aside > 0 {
        let blocks = counted(of.aside, "block", "blocks");
        let objects = match of.objects {
            0 => String::new(),
            some => format!(", with {}", counted(some, "object", "objects")),
        };
        parts.push(format!(
            "{blocks}{objects} {would_be}set aside: objects there that can be reached stay, and cannot be freed"
        ));
    }
    if parts.is_empty() {
        return "nothing to mend".into();
    }
    parts.join("; ")
}

/// Copies the file as it is, and its log unless that is set aside: no process changes them meanwhile. The names of the copies.
fn back_up(path: &Path, sets_log_aside: bool) -> Result<Vec<PathBuf>, Failure> {
    let unread = |why| match why {
        libc::EWOULDBLOCK => failed(path, Error::Locked),
        why => failed(path, Error::System(why)),
    };
    let heap = image::locked(path).map_err(unread)?;
    let log = image::open(&log_of(path)).ok();
    let log = log.filter(|log| !sets_log_aside && log.bytes().is_ok_and(|bytes| bytes > 0));
    let backup = beside(path, ".before-repair");
    let copies = [(Some(heap), backup.clone()), (log, log_of(&backup))];
    let mut kept = Vec::new();
    for (image, to) in copies.iter().filter_map(|(image, to)| Some((image.as_ref()?, to))) {
        if let Err(why) = image::duplicate(image, to) {
            kept.iter().for_each(|file| drop(std::fs::remove_file(file)));
            return Err(not_written(to, &why));
        }
        kept.push(to.clone());
    }
    Ok(kept)
}

/// A file's identity, length and times of changes: a file of the same state was not written to.
fn state(path: &Path) -> Option<[i64; 6]> {
    let file = path.symlink_metadata().ok()?;
    let (number, bytes) = (file.ino() as i64, file.len() as i64);
    Some([number, bytes, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()])
}

/// Where files are as they were.
fn as_it_was(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; as it was before it is kept in {}", names.join(" and ")),
    }
}

/// Mends what a medium holds, says how, and looks at it anew.
fn mend(path: &Path, medium: &Media) -> Result<Result<(Repaired, Survey), Error>, Failure> {
    let progress = Progress::share("mending", bytes_of(path));
    let watch = progress.watcher();
    let mut outcome = Ok(());
    let mut told = |finding: &Finding| {
        if outcome.is_ok() {
            let lost = if finding.kind == Kind::Mended { "put right" } else { "cleared" };
            outcome = progress.out(format_args!("{}: {lost}", line(finding)));
        }
    };
    let repaired = repair_watched(medium, is_durable(path), &mut told, Some(&watch));
    drop(progress);
    // The heap is mended, whether the messages are read or not.
    outcome?;
    Ok(repaired.and_then(|repaired| Ok((repaired, look(path, medium)?))))
}

fn look(path: &Path, medium: &Media) -> Result<Survey, Error> {
    let progress = Progress::share("looking at all of it", bytes_of(path));
    check_watched(medium, &[], is_durable(path), &mut |_| (), Some(&progress.watcher()))
}

/// Nothing of the heap can be mended.
fn hopeless(path: &Path, why: Error) -> Result<u8, Failure> {
    if !is_damage(&why) {
        return Err(copy_failed(path, why));
    }
    say::out(format_args!(
        "{}: {}; that cannot be mended: use a copy of the heap, if there is one",
        path.display(),
        why.reason()
    ))?;
    Ok(DAMAGED)
}
