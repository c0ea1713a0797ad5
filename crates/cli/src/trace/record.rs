//! `spandrel trace record`: a program run with the recorder on, and the files that it left.

use super::args::RecordArgs;
use super::claim::Claim;
use super::{check_limit, kinds, read};
use crate::args::RunArgs;
use crate::run;
use spandrel_console::Failure;
use spandrel_console::files;
use spandrel_console::say;
use spandrel_console::terminal::{Stream, table};
use spandrel_recorder::End;
use spandrel_report::numbers::{bytes, count};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that are shown; of others, how many they are.
const SHOWN: usize = 20;

/// Where the files of the processes go.
struct Place {
    directory: PathBuf,
    /// What the names begin and end with; the process id, and perhaps a number, is in between.
    before: OsString,
    after: OsString,
    /// What the program's own file is called in the end, unless like the others.
    main: Option<Claim>,
}

impl Place {
    fn new(out: Option<&Path>, program: &OsStr) -> Result<Self, Failure> {
        let usual = || {
            let mut name = Path::new(program).file_name().unwrap_or(program).to_os_string();
            name.push(".trace");
            PathBuf::from(name)
        };
        let path = out.map_or_else(usual, Path::to_path_buf);
        let refuse =
            |why: &str| Err(Failure::refused(format!("--out: '{}' {why}", path.display())));
        let is_name = !path.is_dir() && !files::is_output(&path);
        let Some(name) = path.file_name().filter(|_| is_name) else {
            return refuse("is no name of a file; name one");
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new("."));
        let Ok(directory) = directory.canonicalize() else {
            return refuse("lies in a directory that is not there; make it first");
        };
        let (name, in_directory) = (name.as_bytes(), directory.as_os_str().as_bytes());
        if in_directory.windows(2).any(|pair| pair == b"%p") {
            return refuse("has '%p' in its directory, where it may only be in its name");
        }
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        if let Some(at) = name.windows(2).position(|pair| pair == b"%p") {
            if name[at + 2..].windows(2).any(|pair| pair == b"%p") {
                return refuse("has '%p' more than once");
            }
            let (before, after) = (part(&name[..at]), part(&name[at + 2..]));
            return Ok(Self { directory, before, after, main: None });
        }
        let stem = path.file_stem().unwrap_or_default().as_bytes();
        let before = part(&[stem, b"."].concat());
        let after = part(&name[stem.len()..]);
        let main = match Claim::new(&directory.join(part(name))) {
            Ok(main) => main,
            Err(why) => return refuse(&why),
        };
        Ok(Self { main: Some(main), directory, before, after })
    }

    fn pattern(&self) -> OsString {
        let mut name = self.before.clone();
        name.push("%p");
        name.push(&self.after);
        self.directory.join(name).into_os_string()
    }

    /// The process id of a file of these, and how many of that process came before.
    fn process(&self, path: &Path) -> Option<(u32, u32)> {
        let name = path.file_name()?.as_bytes();
        let rest = name.strip_prefix(self.before.as_bytes())?;
        let number = std::str::from_utf8(rest.strip_suffix(self.after.as_bytes())?).ok()?;
        let (pid, again) = number.split_once('-').unwrap_or((number, "0"));
        Some((pid.parse().ok()?, again.parse().ok()?))
    }

    /// Files that were made since, by process.
    fn files(&self, since: SystemTime) -> Vec<(u32, u32, PathBuf)> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let made = entries.filter(|entry| {
            entry.metadata().and_then(|about| about.modified()).is_ok_and(|time| time >= since)
        });
        let mut files: Vec<_> = made
            .filter_map(|entry| {
                let (pid, again) = self.process(&entry.path())?;
                Some((pid, again, entry.path()))
            })
            .collect();
        files.sort();
        files
    }

    /// Gives the program's own file its name: the last of its process, which may have executed
    /// others before.
    fn name_main(&self, pid: u32, files: &mut [(u32, u32, PathBuf)]) -> Result<(), Failure> {
        let Some(main) = &self.main else { return Ok(()) };
        if let Some((.., path)) = files.iter_mut().rev().find(|(of, ..)| *of == pid) {
            main.give_to(path).map_err(|why| {
                let (path, main) = (path.display(), main.path().display());
                Failure::new(format!("{path}: cannot be renamed to {main}: {why}"))
            })?;
            *path = main.path().to_path_buf();
        }
        Ok(())
    }
}

/// Runs a program and records it.
pub fn run(args: &RecordArgs) -> Result<u8, Failure> {
    let program = args.command.first().map_or(OsStr::new("program"), OsString::as_os_str);
    let place = Place::new(args.out.as_deref(), program)?;
    kinds("--of", &args.of)?;
    let pattern = place.pattern();
    let mut variables: Vec<(&str, &OsStr)> =
        vec![("SPANDREL_TRACE", &pattern), ("SPANDREL_TRACE_OF", OsStr::new(&args.of))];
    if let Some(limit) = &args.limit {
        check_limit("--limit", limit)?;
        variables.push(("SPANDREL_TRACE_LIMIT", OsStr::new(limit)));
    }
    let asked = RunArgs {
        mode: args.mode.clone(),
        profile: None,
        stats: false,
        compare: Vec::new(),
        runs: 1,
        report: None,
        verbose: false,
        force: false,
        lib: args.lib.clone(),
        command: args.command.clone(),
    };
    // What file systems note is coarser than the clock.
    let since = SystemTime::now() - std::time::Duration::from_secs(2);
    let ended = run::run_with(&asked, &variables)?;
    let mut files = place.files(since);
    place.name_main(ended.pid, &mut files)?;
    if files.is_empty() {
        say::err("spandrel: nothing was recorded: no process could write its file");
    } else {
        say::err(list(&files));
    }
    ended.pass_on();
    Ok(ended.code)
}

/// The files and what they contain.
fn list(files: &[(u32, u32, PathBuf)]) -> String {
    let header = ["recording", "program", "process", "size", "requests", "spans", "time"];
    let mut table = table::on(Stream::Err, &header.map(String::from));
    table::left(&mut table, 1);
    for (pid, _, path) in files.iter().take(SHOWN) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        table::add(&mut table, false, row(name, *pid, path));
    }
    let mut text = table.to_string();
    if files.len() > SHOWN {
        text += &format!("\n  and {} more", files.len() - SHOWN);
    }
    text
}

fn row(name: String, pid: u32, path: &Path) -> Vec<String> {
    let summary = read(path).ok().and_then(|trace| {
        let (mut requests, mut spans, mut ns) = (0, 0, 0);
        for happened in trace.events() {
            let happened = happened.ok()?;
            ns = happened.ns;
            match happened.event.is_of_spans() {
                true => spans += 1,
                false => requests += 1,
            }
        }
        Some((trace, requests, spans, ns))
    });
    let Some((trace, requests, spans, ns)) = summary else {
        let nothing = || table::NOTHING.to_string();
        return vec![name, nothing(), pid.to_string(), nothing(), nothing(), nothing(), nothing()];
    };
    let time = format!("{:.1} s", ns as f64 / 1e9);
    let time = match trace.header.end {
        End::Exit => time,
        End::Open => time + ", not ended by itself",
        End::Limit => time + ", to its limit",
        End::Full | End::Error => time + ", not to the end",
    };
    vec![
        name,
        trace.header.program.clone(),
        pid.to_string(),
        bytes(trace.len() as f64),
        count(requests),
        count(spans),
        time,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_processes() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().canonicalize().unwrap();
        let place = Place::new(Some(&here.join("a.b.trace")), OsStr::new("x")).unwrap();
        assert_eq!(place.pattern(), here.join("a.b.%p.trace").as_os_str());
        assert_eq!(place.process(&here.join("a.b.17.trace")), Some((17, 0)));
        assert_eq!(place.process(&here.join("a.b.17-3.trace")), Some((17, 3)));
        assert_eq!(place.process(&here.join("a.b.trace")), None);
        assert_eq!(place.process(&here.join("a.b.x.trace")), None);
        let place = Place::new(Some(&here.join("%p")), OsStr::new("x")).unwrap();
        assert_eq!(place.pattern(), here.join("%p").as_os_str());
        assert!(place.main.is_none());
        let place = Place::new(None, OsStr::new("/usr/bin/ls")).unwrap();
        assert!(place.main.as_ref().unwrap().path().ends_with("ls.trace"));
    }

    #[test]
    fn what_is_no_name_or_there_already_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        std::fs::write(here.join("old.trace"), "recorded").unwrap();
        for name in ["old.trace", "", "no/x.trace", "%p.%p"] {
            let refused = Place::new(Some(&here.join(name)), OsStr::new("x")).err().unwrap();
            assert_eq!(refused.code, 2, "{name}");
        }
    }

    #[test]
    fn the_last_file_of_the_program_gets_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(Some(&directory.path().join("x.trace")), OsStr::new("x")).unwrap();
        for name in ["x.5.trace", "x.5-1.trace", "x.7.trace", "other"] {
            std::fs::write(place.directory.join(name), name).unwrap();
        }
        let mut files = place.files(SystemTime::UNIX_EPOCH);
        place.name_main(5, &mut files).unwrap();
        let names: Vec<_> = files.iter().map(|(.., path)| path.file_name().unwrap()).collect();
        assert_eq!(names, ["x.5.trace", "x.trace", "x.7.trace"]);
        let main = std::fs::read_to_string(directory.path().join("x.trace")).unwrap();
        assert_eq!(main, "x.5-1.trace");
    }
}
