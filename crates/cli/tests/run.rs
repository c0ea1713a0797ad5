//! `spandrel run` from the outside: what reaches the program, and what comes back.

mod common;

use common::{Done, Place};
use nix::sys::signal::{SigHandler, Signal, kill, signal as set_disposition};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

#[test]
fn output_arguments_and_exit_code_are_the_programs() {
    let place = Place::new();
    let done = place.run(&["--", "sh", "-c", "echo \"$0 $1\"; echo err >&2; exit 7", "a", "--b"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(7), "a --b\n", "err\n"));
}

#[test]
fn the_library_stands_before_what_is_preloaded_already() {
    let place = Place::new();
    let mut command =
        place.command(&["--mode", "mmap", "--", "sh", "-c", "echo $LD_PRELOAD $SPANDREL_MODE"]);
    let other = place.program("other.so", "int other;", &["-shared", "-fPIC"]);
    let done: Done = command.env("LD_PRELOAD", &other).output().unwrap().into();
    assert_eq!(done.out, format!("{}:{other} mmap\n", place.library.display()));
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let place = Place::new();
    let script = "echo $SPANDREL_MODE,$BRUG_ALLOC,$SPANDREL_PROFILE";
    let mut command = place.command(&["--mode", "sys", "--", "sh", "-c", script]);
    let done: Done = command.env("BRUG_ALLOC", "MMAP").output().unwrap().into();
    assert_eq!(done.out, "sys,,\n");
    let done: Done =
        place.command(&["sh", "-c", script]).env("BRUG_ALLOC", "MMAP").output().unwrap().into();
    assert_eq!(done.out, ",MMAP,\n");
}

#[test]
fn wrong_modes_and_profiles_are_refused_with_2() {
    let place = Place::new();
    let done = place.run(&["--mode", "fastest", "--", "true"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("'fastest'") && done.err.contains("known are"), "{}", done.err);

    let done = place.run(&["--mode", "tcmalloc", "--", "true"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("not built"), "{}", done.err);

    let profile = place.directory.path().join("gap.toml");
    std::fs::write(&profile, "version = 1\nmode = \"template\"\n[template]\n\"4KiB-\" = \"sys\"\n")
        .unwrap();
    let profile = profile.to_str().unwrap();
    let done = place.run(&["--profile", profile, "--", "true"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("line 4"), "{}", done.err);

    // What has no end is read to a limit, and what is no profile comes with the way out.
    for (profile, why) in
        [("/dev/zero", "larger than"), ("/etc", "directory"), ("/etc/passwd", "line 1")]
    {
        let done = place.run(&["--profile", profile, "--", "true"]);
        assert_eq!(done.code, Some(2));
        assert!(done.err.contains(profile) && done.err.contains(why), "{}", done.err);
        assert!(done.err.contains("docs/modes.md"), "{}", done.err);
    }
    let done = place.run(&["--report", "/no/such/run.html", "--", "true"]);
    assert_eq!(done.code, Some(2));
    assert!(!done.err.contains(".spandrel"), "{}", done.err);

    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_MODE", "nonsense").output().unwrap().into();
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("SPANDREL_MODE"), "{}", done.err);

    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_RELEASE_RATE", "1GB/h").output().unwrap().into();
    assert_eq!(done.code, Some(2));
    let said = done.err;
    assert!(said.contains("SPANDREL_RELEASE_RATE") && said.contains("'1GB/h'"), "{said}");
    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_TUNER", "fast").output().unwrap().into();
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("SPANDREL_TUNER") && done.err.contains("'fast'"), "{}", done.err);
    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_MODEE", "sys").output().unwrap().into();
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("SPANDREL_MODEE: ") && done.err.contains("SPANDREL_MODE "));
    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_RELEASE_RATE", "256MiB").output().unwrap().into();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
}

#[test]
fn programs_that_cannot_be_preloaded_are_refused_with_2() {
    let place = Place::new();
    let program = place.program("static", "int main(void) { return 5; }", &["-static"]);
    let done = place.run(&["--", &program]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("statically linked"), "{}", done.err);

    let done = place.run(&["--force", "--", &program]);
    assert_eq!(done.code, Some(5));
    assert!(done.err.contains("runs without Spandrel"), "{}", done.err);
}

#[test]
fn a_missing_or_wrong_library_is_refused_with_2() {
    let place = Place::new();
    // An empty name is none: the library is looked for beside the command.
    let mut command = place.command(&["--", "true"]);
    let done: Done = command.env("SPANDREL_LIB", "").output().unwrap().into();
    assert!(done.code == Some(0) || done.err.contains("was not found beside"), "{}", done.err);
    let other = place.program("libspandrel.so.9", "int spandrel;", &["-shared", "-fPIC"]);
    for (library, why) in [
        ("/no/such/lib.so", "No such file"),
        ("/etc/passwd", "not a shared library"),
        ("/etc", "not a shared library"),
        (other.as_str(), "another library than Spandrel"),
    ] {
        let done = place.run(&["--lib", library, "--", "echo", "started"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{library}");
        assert!(done.err.contains(library) && done.err.contains(why), "{}", done.err);
    }
}

#[test]
fn missing_programs_are_127_and_the_others_126() {
    let place = Place::new();
    assert_eq!(place.run(&["--", "no-such-program"]).code, Some(127));
    assert_eq!(place.run(&["--", "/no/such/program"]).code, Some(127));
    assert_eq!(place.run(&["--", "/etc/passwd"]).code, Some(126));
    assert_eq!(place.run(&["--", "/tmp"]).code, Some(126));
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    let place = Place::new();
    assert_eq!(place.run(&["--", "sh", "-c", "kill -KILL $$"]).code, Some(137));
    assert_eq!(place.run(&["--", "sh", "-c", "kill -SEGV $$"]).code, Some(139));
}

/// Starts a script, waits until it says that it is ready.
fn start(place: &Place, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = place.command(&["--", "sh", "-c", script]);
    // The tests may themselves run with signals ignored (`nohup`, a background job).
    // SAFETY: between fork and exec, a call that POSIX allows in signal handlers.
    unsafe {
        command.pre_exec(|| {
            for signal in [Signal::SIGINT, Signal::SIGHUP] {
                set_disposition(signal, SigHandler::SigDfl)?;
            }
            Ok(())
        });
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

fn send(child: &Child, name: &str) {
    let signal: Signal = format!("SIG{name}").parse().unwrap();
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn signals_reach_the_program() {
    let place = Place::new();
    for (name, code) in [("TERM", 11), ("INT", 12), ("USR1", 13), ("HUP", 14)] {
        let script = format!("trap 'exit {code}' {name}; echo ready; while :; do sleep 0.05; done");
        let (mut child, _out) = start(&place, &script);
        send(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
    }
}

#[test]
fn the_end_is_seen_where_ended_children_are_ignored() {
    let place = Place::new();
    let shown = "grep -E '^SigIgn' /proc/self/status";
    let ignoring = |command: &mut Command| -> Done {
        // SAFETY: as above.
        unsafe {
            command.pre_exec(|| {
                set_disposition(Signal::SIGCHLD, SigHandler::SigIgn)?;
                Ok(())
            });
        }
        command.output().unwrap().into()
    };
    let script = ["-c", &format!("{shown}; exit 5")];
    let plain = ignoring(Command::new("sh").args(script));
    let done = ignoring(place.command(&["--", "sh"]).args(script));
    assert_eq!((done.code, done.err.as_str()), (Some(5), ""));
    assert_eq!(done.out, plain.out);
}

#[test]
fn the_program_starts_with_our_signal_mask_and_dispositions() {
    let place = Place::new();
    let shown = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let plain: Done = Command::new("sh").args(["-c", shown]).output().unwrap().into();
    assert_eq!(signals(&place.run(&["--", "sh", "-c", shown])), signals(&plain));

    let mut nohup = Command::new("sh");
    let inner =
        format!("trap '' HUP; exec {} run -- sh -c \"{shown}\"", env!("CARGO_BIN_EXE_spandrel"));
    nohup.args(["-c", &inner]).env("SPANDREL_LIB", &place.library);
    let done: Done = nohup.output().unwrap().into();
    let plain: Done =
        Command::new("sh").args(["-c", &format!("trap '' HUP; {shown}")]).output().unwrap().into();
    assert_eq!(signals(&done), signals(&plain));
}

/// The sets of signals that a process has printed, without 32 and 33: these belong to glibc, which sets them when a
/// process makes its first thread.
fn signals(done: &Done) -> Vec<u64> {
    let sets = done.out.lines().filter_map(|line| line.split_once('\t'));
    let sets: Vec<u64> =
        sets.map(|(_, set)| u64::from_str_radix(set, 16).unwrap() & !(0b11 << 31)).collect();
    assert_eq!(sets.len(), 2, "{done:?}");
    sets
}

#[test]
fn no_descriptor_of_ours_stays_with_the_program() {
    let place = Place::new();
    let shown = "ls /proc/$$/fd";
    let plain: Done = Command::new("sh").args(["-c", shown]).output().unwrap().into();
    assert_eq!(place.run(&["--", "sh", "-c", shown]).out, plain.out);
}

#[test]
fn a_silent_library_is_missed() {
    let place = Place::new();
    let silent = place.program("silent.so", "int spandrel_live;", &["-shared", "-fPIC"]);
    let done = place.run(&["--lib", &silent, "--", "true"]);
    assert_eq!(done.code, Some(0));
    assert!(done.err.contains("does not seem to run on Spandrel"), "{}", done.err);
    assert_eq!(place.run(&["--", "true"]).err, "");
}

#[test]
fn another_mode_than_asked_for_is_said() {
    let place = Place::new();
    let mut command = place.command(&["--mode", "mmap", "--", "true"]);
    let done: Done = command.env("STAND_IN_MODE", "sys").output().unwrap().into();
    assert!(done.err.contains("in mode sys, not mmap"), "{}", done.err);
}

#[test]
fn statistics_of_all_processes_are_added_up() {
    let place = Place::new();
    // The shell itself may end by `_exit`, and then writes nothing.
    let done = place.run(&["--stats", "--", "sh", "-c", "/bin/true; /bin/true; exit 3"]);
    assert_eq!(done.code, Some(3));
    assert!(done.err.contains("processes, mode auto"), "{}", done.err);
    assert!(done.err.contains("42") || done.err.contains("63"), "{}", done.err);

    let done = place.run(&["--stats", "--", "sh", "-c", "kill -KILL $$"]);
    assert!(done.err.contains("no statistics were written"), "{}", done.err);
}

#[test]
fn reports_hold_each_process_and_their_sum() {
    let place = Place::new();
    let report = place.directory.path().join("report.json");
    let report = report.to_str().unwrap();
    let done = place.run(&["--report", report, "--", "sh", "-c", "/bin/true; /bin/true; exit 3"]);
    assert_eq!((done.code, done.err.as_str()), (Some(3), ""));
    let text = std::fs::read_to_string(report).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["format"], &value["exit_code"]), (&1.into(), &3.into()), "{text}");
    // As exact as what is compared with it.
    assert!(value["elapsed_ms"].is_f64() && value["elapsed_ms"].as_f64() > Some(0.0), "{text}");
    assert_eq!((&value["command"][0], &value["unreadable"]), (&"sh".into(), &0.into()), "{text}");
    let allocs = |stats: &serde_json::Value| stats["requests"][0]["allocs"].as_u64().unwrap();
    let processes = value["processes"].as_array().unwrap();
    assert!(processes.len() >= 2, "{text}");
    assert_eq!(allocs(&value["sum"]), processes.iter().map(allocs).sum::<u64>(), "{text}");

    for (wrong, why) in
        [("report.htm", "ends in .html or .json"), ("/no/such/r.json", "cannot be written")]
    {
        let done = place.run(&["--report", wrong, "--", "sh", "-c", "echo started"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
        assert!(done.err.contains(why) && done.err.contains(wrong), "{}", done.err);
    }
}

#[test]
fn reports_for_people_and_comparisons() {
    let place = Place::new();
    let path = |name: &str| place.directory.path().join(name).to_str().unwrap().to_owned();
    let (page, json) = (path("report.html"), path("report.json"));
    let job = "sleep 0.1; echo said; exit $1";
    let run = |options: &[&str], code: &str| {
        place.run(&[options, &["--", "sh", "-c", job, "sh", code]].concat())
    };
    let done = run(&["--report", &page, "--compare", "sys,native", "--runs", "2"], "0");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "said\n"), "{}", done.err);
    let text = std::fs::read_to_string(&page).unwrap();
    for part in
        ["<!DOCTYPE html>", "sh -c sleep 0.1;", "Memory over time", "sys (without Spandrel)"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    // A job that fails has a report; the ways in which it fails say so.
    let done = run(&["--report", &json, "--compare", "sys", "--runs", "1"], "7");
    assert_eq!((done.code, done.out.as_str()), (Some(7), "said\n"), "{}", done.err);
    let text = std::fs::read_to_string(&json).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ways = value["compared"].as_array().unwrap();
    assert_eq!((ways.len(), &ways[0]["is_the_run"]), (2, &true.into()), "{text}");
    assert!(ways.iter().all(|way| way["failed"].as_str().unwrap().contains('7')), "{text}");
    let samples = value["samples"].as_array().unwrap();
    assert!(samples.iter().any(|s| s["resident_bytes"].as_u64().unwrap() > 0), "{text}");

    // A mode may have commas itself.
    let modes = "template=0-4KiB:jemalloc,4KiB-:mmap,sys";
    let done = run(&["--report", &json, "--compare", modes, "--runs", "1"], "0");
    assert_eq!(done.code, Some(0), "{}", done.err);
    let value: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let names = value["compared"].as_array().unwrap().iter().map(|way| way["name"].as_str());
    let names: Vec<_> = names.map(Option::unwrap).collect();
    assert_eq!(names, ["auto", "template=0-4KiB:jemalloc,4KiB-:mmap", "sys (without Spandrel)"]);

    // An interrupted run is not wanted again.
    let options = ["--report", &json, "--compare", "sys", "--", "sh", "-c", "kill -TERM $$"];
    let done = place.run(&options);
    assert!(done.err.contains("nothing is compared"), "{:?} {}", done.code, done.err);
    let value: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["compared"], serde_json::json!([]));

    let wrong: [(&[&str], &str); 5] = [
        (&["--report", &page, "--compare", "nonsense"], "--compare"),
        (&["--report", &page, "--compare", "sys,sys"], "name each way once"),
        (&["--report", &page, "--compare", "auto"], "name each way once"),
        (&["--compare", "sys"], "--report"),
        (&["--report", &page, "--compare", "sys", "--runs", "0"], "--runs"),
    ];
    for (options, why) in wrong {
        let done = run(options, "0");
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
        assert!(done.err.contains(why), "{}", done.err);
    }
}

#[test]
fn what_is_compared_has_the_settings_of_the_run() {
    let place = Place::new();
    let path = |name: &str| place.directory.path().join(name).to_str().unwrap().to_owned();
    let (page, seen) = (path("report.html"), path("seen"));
    let job = "echo $SPANDREL_MODE,$SPANDREL_PROFILE,$BRUG_ALLOC,$SPANDREL_TUNER >> \"$0\"";
    let mut command = place.command(&[
        "--report",
        &page,
        "--compare",
        "sys,native",
        "--runs",
        "1",
        "--",
        "sh",
        "-c",
        job,
        &seen,
    ]);
    let done: Done =
        command.env("BRUG_ALLOC", "MMAP").env("SPANDREL_TUNER", "0").output().unwrap().into();
    assert_eq!(done.code, Some(0), "{}", done.err);
    let seen = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    let own = ",,MMAP,0";
    assert_eq!(lines[0], own, "{seen}");
    for way in [own, "native,,,0", ",,,"] {
        assert!(lines[1..].contains(&way), "{way} in {seen}");
    }
    let ways = &lines[1..];
    assert!(ways.iter().all(|way| [own, "native,,,0", ",,,"].contains(way)), "{seen}");
}

#[test]
fn verbose_shows_the_librarys_line() {
    let place = Place::new();
    let done = place.run(&["--verbose", "--mode", "mmap", "--", "true"]);
    assert!(done.err.contains("mode mmap"), "{}", done.err);
}
