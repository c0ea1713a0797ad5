//! What a program does whose calls fail: it makes a state, writes, has the log become longer, copies, closes, opens again and writes on. It goes on after errors, as programs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spandrel::durable::{Durable, Error, OpenError};
use spandrel_faults::Calls;

use crate::{Accounts, init};

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has returned: it is there.
    Durable,
    /// It was undone, or refused before it began: it is not there.
    Absent(Error),
    /// It met an error: it is there or not.
    Maybe(Error),
}

/// What the program was told.
#[derive(Default, Debug)]
pub struct Said {
    /// The commands in order, by their numbers.
    commands: Vec<(u64, Fate)>,
    /// The copy, and how many commands were before it.
    copied: Option<(usize, Result<(), String>)>,
    /// Other calls that were refused: openings, closings.
    refused: Vec<String>,
    /// What a kill would have left before the state was closed, and the commands until then.
    left: Option<Left>,
}

/// Files, and the commands of which they have the durable ones.
struct Left {
    commands: Vec<(u64, Fate)>,
    state: Vec<u8>,
    /// `None`: there is no log.
    log: Option<Vec<u8>>,
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Left").field("has_log", &self.log.is_some()).finish_non_exhaustive()
    }
}

impl Left {
    /// Of a directory whose state no command changes meanwhile: its thread may bring records into the state, of which the log has all.
    fn of(path: &Path, commands: &[(u64, Fate)]) -> Self {
        loop {
            let state = fs::read(path.join("state")).unwrap();
            let log = fs::read(path.join("log")).ok();
            if fs::read(path.join("state")).unwrap() == state {
                return Self { commands: commands.to_vec(), state, log };
            }
        }
    }

    /// Puts the files into a directory.
    fn put(&self, path: &Path) {
        fs::write(path.join("state"), &self.state).unwrap();
        self.log.iter().for_each(|log| fs::write(path.join("log"), log).unwrap());
        for file in fs::read_dir(path).unwrap() {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(file.unwrap().path(), mode).unwrap();
        }
    }
}

impl Said {
    /// Whether all went well.
    pub fn is_perfect(&self) -> bool {
        let all = self.commands.iter().all(|(_, fate)| *fate == Fate::Durable);
        let is_copied = self.copied.as_ref().is_none_or(|(_, copied)| copied.is_ok());
        all && is_copied && self.refused.is_empty() && !self.commands.is_empty()
    }

    fn refuse(&mut self, what: &str, why: &impl std::fmt::Display) {
        let text = why.to_string();
        // A reason, and not a number alone.
        assert!(text.len() > 20, "{what}: {text:?}");
        self.refused.push(format!("{what}: {text}"));
    }
}

pub struct Story {
    path: PathBuf,
    copy: PathBuf,
    /// A state whose log has records that it lacks, to begin with.
    killed: Option<PathBuf>,
}

/// The entries of a command that is longer than the log.
const LONG: u64 = 1000;
/// The number of that command.
const LONG_COMMAND: u64 = 2;
/// Bytes of the log.
const LOG_BYTES: u64 = 16 << 10;
/// Commands of the state that was killed.
const BEFORE: u64 = 4;

fn open(path: &Path) -> Result<Durable<Accounts>, OpenError> {
    Durable::open(path, crate::small().log_size(LOG_BYTES), init)
}

/// With the log that it has.
fn open_again(path: &Path) -> Result<Durable<Accounts>, OpenError> {
    if !path.join("log").exists() {
        return open(path);
    }
    Durable::open(path, spandrel::durable::Options::new().limit(1 << 30), init)
}

/// The entries that a command adds.
fn entries_of(number: u64) -> u64 {
    if number == LONG_COMMAND { LONG } else { 1 }
}

fn command(accounts: &mut Accounts, number: u64) -> Result<(), spandrel::heap::Error> {
    accounts.of.insert(number, number * 7)?;
    (0..entries_of(number)).try_for_each(|entry| accounts.log.push([number, entry, number ^ entry]))
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["state", "log"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Makes a state as a kill leaves it: the log has all that the state lacks. False: the thread of the log synced the state's file while it was copied, so that the copy is no such state.
fn leave_as_killed(path: &Path, killed: &Path) -> bool {
    if path.exists() {
        fs::remove_dir_all(path).unwrap();
    }
    // Its log is long: the state's file is synced after some time without a command, and not before.
    let db = Durable::open(path, crate::small(), init).unwrap();
    let begun = Instant::now();
    (100..100 + BEFORE).for_each(|number| db.write(|s| command(s, number)).unwrap().unwrap());
    copy_files(path, killed);
    begun.elapsed() < Duration::from_millis(90)
}

impl Story {
    pub fn new(path: &Path, is_recovery: bool) -> Self {
        let (path, copy) = (path.to_path_buf(), path.with_extension("copy"));
        let killed = is_recovery.then(|| path.with_extension("killed"));
        if let Some(killed) = &killed {
            fs::create_dir(killed).unwrap();
            while !leave_as_killed(&path, killed) {}
        }
        let story = Self { path, copy, killed };
        story.reset();
        story
    }

    /// Begins anew.
    pub fn reset(&self) {
        use std::os::unix::fs::DirBuilderExt;
        for path in [&self.path, &self.copy] {
            if path.exists() {
                fs::remove_dir_all(path).unwrap();
            }
        }
        if let Some(killed) = &self.killed {
            fs::DirBuilder::new().mode(0o700).create(&self.path).unwrap();
            copy_files(killed, &self.path);
        }
    }

    fn write(db: &Durable<Accounts>, number: u64, said: &mut Said) {
        let was_refused = said.commands.iter().any(|(_, fate)| matches!(fate, Fate::Maybe(_)));
        let fate = match db.write(|s| command(s, number)) {
            Ok(Ok(())) => Fate::Durable,
            // What the state's heap refuses keeps what was changed before.
            Ok(Err(why)) => panic!("the heap refuses: {why}"),
            Err(why @ (Error::NoLongerLog(_) | Error::TooLong)) => Fate::Absent(why),
            // Nothing was written, and its text says so.
            Err(why @ Error::Full(_)) => Fate::Absent(why),
            // The first one may be there. Later ones were refused before they began.
            Err(why) if was_refused => Fate::Absent(why),
            Err(why) => Fate::Maybe(why),
        };
        if let Fate::Absent(why) | Fate::Maybe(why) = &fate {
            assert!(why.to_string().len() > 20, "{why}");
        }
        said.commands.push((number, fate));
    }

    /// Looks at what was acknowledged so far: reads go on whatever the disk does, and see nothing that was refused in this life, whose first command that is.
    fn read(db: &Durable<Accounts>, said: &Said, first: u64) {
        let missing = db.read(|s| {
            let is_there = |number: &u64| s.of.get(number) == Some(number * 7);
            let acknowledged = said.commands.iter().filter(|(_, fate)| *fate == Fate::Durable);
            acknowledged.map(|(number, _)| *number).filter(|n| !is_there(n)).collect::<Vec<_>>()
        });
        assert!(missing.is_empty(), "a read does not see {missing:?}: {said:?}");
        let refused = said.commands.iter().filter(|(_, fate)| *fate != Fate::Durable);
        for number in refused.map(|(number, _)| *number).filter(|number| *number >= first) {
            let found = db.read(|s| s.of.get(&number));
            assert_eq!(found, None, "a read sees {number}, which was refused: {said:?}");
        }
        // All of what there is fits together.
        Self::commands_of(db);
    }

    /// The program.
    pub fn tell(&self) -> Said {
        let mut said = Said::default();
        match open(&self.path) {
            Err(why) => said.refuse("opening", &why),
            Ok(db) => {
                assert!(self.killed.is_none() || db.report().replayed > 0, "nothing to recover");
                (0..=LONG_COMMAND).for_each(|number| Self::write(&db, number, &mut said));
                Self::read(&db, &said, 0);
                if self.killed.is_none() {
                    let copied = db.copy(&self.copy).map_err(|why| why.to_string());
                    said.copied = Some((said.commands.len(), copied));
                }
                (7..9).for_each(|number| Self::write(&db, number, &mut said));
                Self::read(&db, &said, 0);
                said.left = Some(Left::of(&self.path, &said.commands));
                if let Err(why) = db.close() {
                    said.refuse("closing", &why);
                }
            }
        }
        // Another life: what this one opens has its own poison.
        let maybe = |said: &mut Said| {
            let of = |(_, fate): &(u64, Fate)| matches!(fate, Fate::Maybe(_));
            std::mem::take(&mut said.commands).into_iter().partition::<Vec<_>, _>(of)
        };
        match open_again(&self.path) {
            Err(why) => said.refuse("opening again", &why),
            Ok(db) => {
                Self::read(&db, &said, 10);
                let (before, rest) = maybe(&mut said);
                said.commands = rest;
                (10..12).for_each(|number| Self::write(&db, number, &mut said));
                Self::read(&db, &said, 10);
                said.commands.extend(before);
                said.commands.sort_by_key(|(number, _)| *number);
                drop(db);
            }
        }
        said
    }

    /// The commands that a state has, in order, each of them whole.
    fn commands_of(db: &Durable<Accounts>) -> Vec<u64> {
        db.read(|s| {
            let (mut commands, mut at) = (Vec::new(), 0);
            while let Some([number, ..]) = s.log.get(at) {
                for entry in 0..entries_of(number) {
                    assert_eq!(
                        s.log.get(at),
                        Some([number, entry, number ^ entry]),
                        "half of a command"
                    );
                    at += 1;
                }
                assert_eq!(s.of.get(&number), Some(number * 7), "half of a command");
                commands.push(number);
            }
            assert_eq!(s.of.len(), commands.len(), "half of a command");
            commands
        })
    }

    /// Whether a state has these commands: all that are durable, and none that are absent.
    fn fits(found: &[u64], commands: &[(u64, Fate)], what: &str) {
        let mut expected = commands.iter().peekable();
        for number in found {
            loop {
                match expected.next() {
                    Some((next, fate)) if next == number => {
                        assert!(!matches!(fate, Fate::Absent(_)), "{number} is there; {what}");
                        break;
                    }
                    Some((next, Fate::Durable)) => panic!("{next} is lost: {found:?}; {what}"),
                    Some(_) => {}
                    None => panic!("{number} comes from nowhere: {found:?}; {what}"),
                }
            }
        }
        let lost = expected.find(|(_, fate)| *fate == Fate::Durable);
        assert!(lost.is_none(), "{lost:?} is lost: {found:?}; {what}");
    }

    /// Opens what the program has left, on a disk that is well.
    pub fn judge(&self, said: &Said, calls: &Calls, what: &str) {
        for life in 0..2u64 {
            let db = open_again(&self.path).unwrap_or_else(|why| panic!("{why}: {what}"));
            let found = Self::commands_of(&db);
            let (before, found): (Vec<u64>, Vec<u64>) = found
                .into_iter()
                .filter(|number| *number < 1000)
                .partition(|number| *number >= 100);
            let expected = if self.killed.is_some() { BEFORE } else { 0 };
            assert_eq!(before.len() as u64, expected, "{what}");
            Self::fits(&found, &said.commands, what);
            db.write(|s| command(s, 1000 + life)).unwrap().unwrap();
            db.close().unwrap_or_else(|why| panic!("{why}: {what}"));
        }
        self.has_files(&self.path, &["figures", "log", "state"], what);
        if let Some(left) = &said.left {
            let directory = tempfile::tempdir_in(self.path.parent().unwrap()).unwrap();
            left.put(directory.path());
            let db = open_again(directory.path());
            let db = db.unwrap_or_else(|why| panic!("after a kill: {why}: {what}"));
            let mut found = Self::commands_of(&db);
            found.retain(|number| *number < 100);
            Self::fits(&found, &left.commands, &format!("after a kill: {what}"));
        }
        let Some((count, copied)) = &said.copied else { return };
        let is_there = self.copy.join("state").exists();
        if copied.is_err() && is_there {
            // The disk does what it reports as an error, or cannot remove the name.
            let is_reason = |fault: &String| fault.contains("Late(") || fault.contains("(unlink");
            assert!(calls.faults.iter().any(is_reason), "a copy that was refused: {what}");
        }
        if is_there {
            let db = open_again(&self.copy).unwrap_or_else(|why| panic!("{why}: {what}"));
            Self::fits(&Self::commands_of(&db), &said.commands[..*count], what);
            db.close().unwrap();
        } else if self.copy.exists() {
            self.has_files(&self.copy, &[], what);
        }
    }

    /// No file is left over.
    fn has_files(&self, path: &Path, most: &[&str], what: &str) {
        for entry in fs::read_dir(path).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(most.iter().any(|known| name == *known), "{name:?} is left over; {what}");
        }
    }
}
