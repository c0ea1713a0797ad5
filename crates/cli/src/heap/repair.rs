//! `spandrel heap repair`: what is damaged is cleared, in a copy first.

use super::args::RepairArgs;
use super::check::{DAMAGED, line};
use super::failed::{copy_failed, failed, is_damage, text as reason};
use super::progress::Progress;
use super::{beside, bytes_of, image, raw_copy};
use crate::failure::Failure;
use crate::say;
use spandrel_pheap::{Error, Finding, Media, Options, Survey, check_watched, repair_watched};
use spandrel_report::numbers::counted;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mends a heap, or says how.
pub fn run(args: &RepairArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let copy = match raw_copy(path, &args.wait) {
        Ok(copy) => copy,
        Err(why) => return hopeless(path, why),
    };
    match look(path, &copy) {
        Err(why) => return hopeless(path, why),
        Ok(survey) if survey.damaged == 0 => {
            say::out(format_args!("{}: sound; there is nothing to mend", path.display()))?;
            return Ok(0);
        }
        Ok(_) => {}
    }
    if args.write {
        // It may have to lie at the same address.
        drop(copy);
        return write(path, !args.no_backup);
    }
    match mend(path, &copy)? {
        Err(why) => hopeless(path, why),
        Ok((cleared, survey)) => {
            let after = match survey.damaged {
                0 => format!("'spandrel heap repair --write {}' does so", path.display()),
                left => format!("{} would be left", counted(left, "damage", "damages")),
            };
            let cleared = counted(cleared, "damage", "damages");
            say::out(format_args!("{}: {cleared} would be cleared; {after}", path.display()))?;
            Ok(DAMAGED)
        }
    }
}

/// Mends the file.
fn write(path: &Path, keeps: bool) -> Result<u8, Failure> {
    let backup = keeps.then(|| beside(path, ".before-repair"));
    if let Some(backup) = backup.as_ref().filter(|backup| backup.symlink_metadata().is_ok()) {
        return Err(Failure::refused(format!(
            "{}: it is there already, and may be the better heap; move it away, or take --no-backup",
            backup.display()
        )));
    }
    // Not the heap: to open that changes it.
    let medium = Options::new().open_medium(path.as_os_str().as_bytes());
    let medium = medium.map_err(|why| failed(path, why))?;
    if let Some(backup) = &backup {
        image::write(&medium, backup)?;
    }
    let kept = kept(backup);
    match mend(path, &medium)? {
        Err(why) if is_damage(&why) => {
            say::out(format_args!("{}: {}{kept}", path.display(), reason(path, why)))?;
            Ok(DAMAGED)
        }
        Err(why) => Err(Failure::refused(format!("{}{kept}", failed(path, why).message))),
        Ok((cleared, survey)) => {
            let cleared = counted(cleared, "damage", "damages");
            let (now, code) = match survey.damaged {
                0 => ("it is sound now".to_string(), 0),
                left => (format!("{} left", counted(left, "damage is", "damages are")), DAMAGED),
            };
            say::out(format_args!("{}: {cleared} cleared; {now}{kept}", path.display()))?;
            Ok(code)
        }
    }
}

fn kept(backup: Option<PathBuf>) -> String {
    backup.map_or_else(String::new, |backup| {
        format!("; as it was before it is kept in {}", backup.display())
    })
}

/// Mends what a medium holds, says how, and looks at it anew.
fn mend(path: &Path, medium: &Media) -> Result<Result<(u64, Survey), Error>, Failure> {
    let progress = Progress::share("mending", bytes_of(path));
    let watch = progress.watcher();
    let mut outcome = Ok(());
    let mut told = |finding: &Finding| {
        if outcome.is_ok() {
            outcome = progress.out(format_args!("{}: cleared", line(finding)));
        }
    };
    let cleared = repair_watched(medium, &mut told, Some(&watch));
    drop(progress);
    // Whoever reads no more has it mended all the same.
    outcome?;
    Ok(cleared.and_then(|cleared| Ok((cleared, look(path, medium)?))))
}

fn look(path: &Path, medium: &Media) -> Result<Survey, Error> {
    let progress = Progress::share("looking at all of it", bytes_of(path));
    check_watched(medium, &[], &mut |_| (), Some(&progress.watcher()))
}

/// Nothing of it can be mended.
fn hopeless(path: &Path, why: Error) -> Result<u8, Failure> {
    if !is_damage(&why) {
        return Err(copy_failed(path, why));
    }
    say::out(format_args!(
        "{}: {}; that cannot be mended: take a copy of the heap, if there is one",
        path.display(),
        why.reason()
    ))?;
    Ok(DAMAGED)
}
