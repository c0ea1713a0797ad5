//! C programs whose disk fails: every call of theirs that changes a file fails, one at a time, or all from one on. The program hears of the fault by an error with its reason, reads go on, what was
//! acknowledged is there afterwards, and the next opening works.
//!
//! CI tries a sample, the same each time; `SPANDREL_SOAK` has all be tried, and `SPANDREL_TEST_SEED` another sample.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{EINTR, EIO, ENOMEM, ENOSPC};
use spandrel_faults::{Calls, Fault, Plan, supervise_programs};
use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::Program;
use spandrel_tests::{Finished, Job};
use tempfile::TempDir;

/// Programs that run at a time: most of the time they wait for the disk.
const WORKERS: usize = 6;
/// What CI tries of each program in each place.
const SAMPLE: usize = 12;

/// Where states lie in the memory of the machine, and on its disk.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It has returned: it is there.
    Durable,
    /// It was undone, or refused before it began: it is not there.
    Absent,
    /// It met an error: it is there or not.
    Maybe,
}

/// What the program was told.
#[derive(Default, Debug)]
struct Said {
    /// The commands in order, by their numbers.
    commands: Vec<(u64, Fate)>,
    /// Whether there is a copy, and how many commands were before it.
    copied: Option<(usize, bool)>,
    /// Openings and closings that were refused.
    refused: Vec<String>,
}

impl Said {
    fn of(done: &Finished) -> Self {
        let mut said = Self::default();
        for line in done.out().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let command = || words[1].parse().expect("a number");
            match words[0] {
                "durable" => said.commands.push((command(), Fate::Durable)),
                "absent" => said.commands.push((command(), Fate::Absent)),
                "maybe" => said.commands.push((command(), Fate::Maybe)),
                "copied" => said.copied = Some((said.commands.len(), true)),
                "no" => said.copied = Some((said.commands.len(), false)),
                "refused" => said.refused.push(line.to_owned()),
                _ => panic!("{line}: {done}"),
            }
        }
        said
    }

    /// Whether all went well.
    fn is_perfect(&self) -> bool {
        let all = self.commands.iter().all(|(_, fate)| *fate == Fate::Durable);
        let is_copied = self.copied.is_some_and(|(_, is_there)| is_there);
        all && is_copied && self.refused.is_empty() && !self.commands.is_empty()
    }
}

/// Commands of a state that was killed before the program begins.
const LEFT: [u64; 4] = [100, 101, 102, 103];

/// A directory that a program makes its state in.
struct Scene<'a> {
    program: &'a Program,
    folder: TempDir,
    /// A state whose log has records that it lacks, to begin with.
    killed: Option<&'a Path>,
}

impl<'a> Scene<'a> {
    fn new(program: &'a Program, place: &Path, killed: Option<&'a Path>) -> Self {
        let folder = tempfile::tempdir_in(place).expect("a temporary folder");
        Self { program, folder, killed }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("state.copy")
    }

    fn job(&self, directory: &Path, what: &str, command: u64) -> Job {
        Job::new(self.program.path()).arg(directory).arg(what).arg(command.to_string())
    }

    /// Has the program leave a state that has to be recovered. Its log may be in the state's file already, if the program had to wait.
    fn leave_killed(&self, to: &Path) {
        loop {
            self.reset();
            let done = self.job(&self.state(), "left", 0).run();
            assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
            copy_files(&self.state(), to);
            let (replayed, found) = self.looks(&self.state(), 1000, "a state that was killed");
            assert_eq!(found, LEFT);
            if replayed > 0 {
                return;
            }
        }
    }

    /// Begins anew.
    fn reset(&self) {
        for path in [self.state(), self.copy()] {
            if path.exists() {
                fs::remove_dir_all(path).expect("its own directory");
            }
        }
        if let Some(killed) = self.killed {
            copy_files(killed, &self.state());
        }
    }

    /// What a state has, on a disk that is well: how much of it only the log had, and its commands. Adds a command.
    fn looks(&self, directory: &Path, command: u64, what: &str) -> (u64, Vec<u64>) {
        let done = self.job(directory, "looks", command).run();
        assert!(done.ok() && done.stderr.is_empty(), "{what}\n{done}");
        let out = done.out();
        let numbers = |word| out.lines().filter_map(move |line| line.strip_prefix(word));
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let replayed = numbers("replayed ").map(number).sum();
        (replayed, numbers("found ").map(number).collect())
    }

    /// Runs the program with a fault, and judges what it says and leaves. Returns whether a call had a fault, and the calls.
    fn tries(&self, Trial { what, plan, .. }: Trial) -> (bool, Calls) {
        self.reset();
        let title = format!("{}: {what} {plan:?}", self.folder.path().display());
        let run = || self.job(&self.state(), what, 0).run();
        let (done, calls) = supervise_programs(plan, &title, run);
        let faults = &calls.faults[..calls.faults.len().min(4)];
        let title = format!("{title}\n{faults:#?}\n{done}");
        let said = Said::of(&done);
        let was_opened = !done.out().starts_with("refused opening");
        let is_killed = what == "dies" && was_opened && done.signal == Some(libc::SIGKILL);
        assert!(is_killed || done.ok() && (what == "lives" || !was_opened), "{title}");
        assert!(done.stopped.is_none(), "{title}");
        // A write of a part and an interruption are no errors.
        let is_no_fault = plan.is_none_or(|plan| {
            plan.then.is_none() && matches!(plan.fault, Fault::Short | Fault::Error(EINTR))
        });
        assert!(!is_no_fault || said.is_perfect(), "an error without a reason: {title}");
        self.judge(&said, &calls, &title);
        (!calls.faults.is_empty(), calls)
    }

    fn judge(&self, said: &Said, calls: &Calls, what: &str) {
        for command in [1000, 1001] {
            let (_, found) = self.looks(&self.state(), command, what);
            let left = if self.killed.is_some() { &LEFT[..] } else { &[] };
            let rest = found.strip_prefix(left);
            let rest = rest.unwrap_or_else(|| panic!("what was there is lost: {found:?}; {what}"));
            let end = rest.iter().position(|number| *number >= 1000).unwrap_or(rest.len());
            fits(&rest[..end], &said.commands, what);
        }
        has_files(&self.state(), &["figures", "log", "state"], what);
        let Some((count, is_copied)) = said.copied else { return };
        let is_there = self.copy().join("state").exists();
        if !is_copied && is_there {
            // The disk does what it reports as an error, or cannot remove the name.
            let is_reason = |fault: &String| fault.contains("Late(") || fault.contains("(unlink");
            assert!(calls.faults.iter().any(is_reason), "a copy that was refused: {what}");
        }
        assert!(!is_copied || is_there, "there is no copy: {what}");
        if is_there {
            let (_, found) = self.looks(&self.copy(), 1000, what);
            let rest = found.strip_prefix(if self.killed.is_some() { &LEFT[..] } else { &[] });
            fits(rest.expect("what was there"), &said.commands[..count], what);
        } else if self.copy().exists() {
            has_files(&self.copy(), &[], what);
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).expect("a directory");
    for name in ["state", "log"] {
        fs::copy(from.join(name), to.join(name)).expect("a file");
        fs::set_permissions(to.join(name), fs::Permissions::from_mode(0o600)).expect("its mode");
    }
}

/// No file is left over.
fn has_files(directory: &Path, most: &[&str], what: &str) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        assert!(most.iter().any(|known| name == *known), "{name:?} is left over; {what}");
    }
}

/// Whether a state has these commands: all that are durable, and none that are absent.
fn fits(found: &[u64], commands: &[(u64, Fate)], what: &str) {
    let mut expected = commands.iter();
    for number in found {
        let is_it = loop {
            match expected.next() {
                Some((next, fate)) if next == number => break *fate != Fate::Absent,
                Some((next, Fate::Durable)) => panic!("{next} is lost: {found:?}; {what}"),
                Some(_) => {}
                None => panic!("{number} comes from nowhere: {found:?}; {what}"),
            }
        };
        assert!(is_it, "{number} was refused, and is there: {found:?}; {what}");
    }
    let lost = expected.find(|(_, fate)| *fate == Fate::Durable);
    assert!(lost.is_none(), "{lost:?} is lost: {found:?}; {what}");
}

/// One run of the program.
#[derive(Clone, Copy)]
struct Trial {
    /// `lives`, or `dies`: it is killed before it closes its state.
    what: &'static str,
    is_recovery: bool,
    plan: Option<Plan>,
}

/// What may become of a call.
fn plans(at: u64, name: &str) -> Vec<Plan> {
    let full = Fault::Error(ENOSPC);
    let part = Plan { then: Some(full), ..Plan::once(at, Fault::Short) };
    let mut plans = vec![
        Plan::once(at, Fault::Error(EIO)),
        Plan::once(at, full),
        Plan::once(at, Fault::Late(EIO)),
        Plan::from(at, Fault::Error(EIO)),
        Plan::from(at, full),
        Plan { last: at + 2, ..Plan::once(at, Fault::Error(EINTR)) },
    ];
    match name {
        "pwrite64" | "write" => plans.extend([Plan::once(at, Fault::Short), part]),
        "mmap" => plans.push(Plan::once(at, Fault::Error(ENOMEM))),
        _ => {}
    }
    plans
}

/// All that may be tried of a program in a place; without `SPANDREL_SOAK` a sample of it, drawn by a seed.
fn trials(calls: impl Fn(Trial) -> Calls) -> Vec<Trial> {
    let mut trials = Vec::new();
    for is_recovery in [false, true] {
        for what in ["lives", "dies"] {
            let trial = Trial { what, is_recovery, plan: None };
            let names = calls(trial).names;
            assert!(names.len() >= 15, "{names:?}");
            println!("{what}, recovery {is_recovery}: {} calls: {}", names.len(), names.join(" "));
            let all = (1..).zip(names).flat_map(|(at, name)| plans(at, name));
            trials.extend(all.map(|plan| Trial { plan: Some(plan), ..trial }));
        }
    }
    if number_of("SPANDREL_SOAK").is_none() {
        let mut drawn = number_of("SPANDREL_TEST_SEED").unwrap_or(1);
        for at in 0..SAMPLE {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = at + (drawn >> 33) as usize % (trials.len() - at);
            trials.swap(at, other);
        }
        trials.truncate(SAMPLE);
    }
    trials
}

/// Tries a program in each place.
fn all_is_there_after_faults(program: &Program) {
    for place in places() {
        let template = tempfile::tempdir_in(&place).expect("a temporary folder");
        let killed = template.path().join("killed");
        Scene::new(program, &place, None).leave_killed(&killed);
        let scenes = || [None, Some(&*killed)].map(|killed| Scene::new(program, &place, killed));
        let first = scenes();
        let trials = trials(|trial| first[usize::from(trial.is_recovery)].tries(trial).1);
        let (wanted, left, faults) = (trials.len(), Mutex::new(trials), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    let scenes = scenes();
                    while let Some(trial) = { left.lock().expect("no panic").pop() } {
                        let (had_fault, _) = scenes[usize::from(trial.is_recovery)].tries(trial);
                        faults.fetch_add(u64::from(had_fault), Ordering::Relaxed);
                    }
                });
            }
        });
        let faults = faults.into_inner();
        println!("{}: {faults} faults in {wanted} runs", place.display());
        // A call whose number is late may not come: threads share the work as they are scheduled.
        assert!(faults >= wanted as u64 * 3 / 4, "{faults} of {wanted}");
    }
}

fn source() -> PathBuf {
    abi_dir().join("durable_faults.c")
}

#[test]
fn a_program_that_names_its_stores_loses_nothing() {
    all_is_there_after_faults(&Program::durable(&source(), &[]));
}

#[test]
fn a_program_with_hooks_loses_nothing() {
    all_is_there_after_faults(&Program::hooked("cc", &source(), &["-std=c11", "-O2"]));
}

#[test]
fn a_program_whose_commands_are_translated_loses_nothing() {
    all_is_there_after_faults(&Program::durable(&source(), &["-DTRANSLATED", "-O2"]));
}

/// Memory for translated code is there when a state is opened, or opening says that there is none: no command ends for the lack of it.
#[test]
fn memory_for_translated_code_is_there_before_a_command() {
    let program = Program::durable(&source(), &["-DTRANSLATED", "-O2"]);
    let scene = Scene::new(&program, &places()[0], None);
    let trial = Trial { what: "lives", is_recovery: false, plan: None };
    let (_, calls) = scene.tries(trial);
    let of_code = (1..).zip(calls.names).skip_while(|(_, name)| *name != "ftruncate");
    let of_code = of_code.take_while(|(_, name)| ["ftruncate", "mmap"].contains(name));
    let plans = of_code.flat_map(|(at, _)| {
        let interrupted = Plan { last: at + 2, ..Plan::once(at, Fault::Error(EINTR)) };
        let none = Fault::Error(ENOMEM);
        [interrupted, Plan::once(at, none), Plan::from(at, none)]
    });
    let runs = plans.map(|plan| scene.tries(Trial { plan: Some(plan), ..trial }).0);
    let faults = runs.filter(|had_fault| *had_fault).count();
    assert!(faults >= 8, "{faults}");
}
