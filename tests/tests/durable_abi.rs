//! `libspandrel_durable`: C and C++ programs whose state survives them, also when they are killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use spandrel_histories::{History, judge, now};
use spandrel_tests::Job;
use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, built, compile};
use spandrel_tests::snippets::texts;
use spandrel_tests::subject::workspace;

fn source(file: &str) -> PathBuf {
    abi_dir().join(file)
}

/// Where states lie in the memory of the machine, and on its disk.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

/// Kills a program again and again while its threads change the state, and looks at what is left.
fn is_killed_in_the_middle(program: &Program, rounds: u64) {
    program.is_killed_in_the_middle(&["churn"], rounds);
    program.ends_well(&["verify"]);
    program.ends_well(&["verify"]);
}

#[test]
fn what_was_acknowledged_is_there_after_kills() {
    for place in places() {
        let program = Program::durable(&source("durable_threads.c"), &[]).with_heaps_in(&place);
        is_killed_in_the_middle(&program, 20);
        // A closed state is a heap like any other, with all of its objects.
        let state = program.heaps().join("heap/state");
        let checked = Command::new(built("spandrel")).args(["heap", "check"]).arg(&state).output();
        let checked = checked.expect("the command");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn the_compilers_hooks_capture_what_an_unchanged_program_stores() {
    for place in places() {
        for level in ["-O0", "-O2", "-O3"] {
            let threads = source("durable_threads.c");
            let program = Program::hooked("cc", &threads, &["-std=c11", level]);
            is_killed_in_the_middle(&program.with_heaps_in(&place), 5);
        }
    }
}

/// Kills a program whose threads write down what they do, also while it opens its state, and has a judge look for an order of all calls that explains their results.
fn is_linearizable(program: &Program, kills: u64) {
    let file = program.heaps().join("history");
    let (history, name) = (History::open(&file), file.display().to_string());
    for round in 0..kills {
        let running = program.job(&["churn", &name, &round.to_string()]).start();
        let begun = Instant::now();
        while round % 4 > 0 && !running.stdout_so_far().contains("begun") {
            let is_late = running.has_ended() || begun.elapsed() > Duration::from_secs(60);
            assert!(!is_late, "it does not begin: {}", running.stderr_so_far());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(500 + round * round * 7919 % 40_000));
        // SAFETY: the number of a process that was started here.
        unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
        let done = running.wait();
        assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
        history.crash_since(now());
    }
    program.ends_well(&["look", &name, &kills.to_string()]);
    let figures = judge(&file).expect_linearizable();
    println!("{kills} kills: {figures}");
    let calls = figures.split("linearizable: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(calls.unwrap().parse::<u64>().unwrap() > kills * 3, "{figures}");
}

/// `SPANDREL_SOAK` says how often each is killed.
#[test]
fn kills_leave_histories_that_are_linearizable() {
    let kills = std::env::var("SPANDREL_SOAK").map_or(20, |kills| kills.parse().unwrap());
    for place in places() {
        let history = source("durable_history.c");
        is_linearizable(&Program::durable(&history, &[]).with_heaps_in(&place), kills);
        let hooked = Program::hooked("cc", &history, &["-std=c11", "-O2"]);
        is_linearizable(&hooked.with_heaps_in(&place), kills);
        let translated = Program::durable(&history, &["-DTRANSLATED", "-O2"]);
        is_linearizable(&translated.with_heaps_in(&place), kills);
    }
}

#[test]
fn two_states_of_a_process_are_apart() {
    let program = Program::hooked("cc", &source("durable_two.c"), &["-std=c11"]);
    program.is_killed(&["fill"]);
    program.ends_well(&["verify"]);
    program.ends_well(&["copies"]);
}

/// Compilers of C that are there. The second one is not everywhere.
fn compilers() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [("gcc", "g++"), ("clang", "clang++"), ("clang-14", "clang++-14")];
    all.into_iter()
        .filter(|(c, _)| *c == "gcc" || Command::new(c).arg("--version").output().is_ok())
}

#[test]
fn each_kind_of_store_is_captured_as_the_document_says() {
    for (c, cpp) in compilers() {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            Program::hooked(c, &source("durable_stores.c"), &["-std=gnu11", level]).ends_well(&[]);
            Program::hooked(cpp, &source("durable_stores_cpp.cc"), &["-std=c++17", level])
                .ends_well(&[]);
        }
    }
}

/// Some distributions have it on: what is stored by the compiler in the place of a fortified function has no hook.
#[test]
fn hooks_beside_fortified_functions_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("alone.c");
    std::fs::write(&alone, "#include <spandrel_durable.h>\n").expect("write");
    for (c, _) in compilers() {
        for (level, is_refused) in [("2", true), ("0", false)] {
            let mut command = Command::new(c);
            command.args([
                "-fsyntax-only",
                "-fsanitize=thread",
                "-fno-builtin",
                "-O2",
                "-U_FORTIFY_SOURCE",
            ]);
            command
                .arg(format!("-D_FORTIFY_SOURCE={level}"))
                .arg("-I")
                .arg(workspace().join("include"));
            let done = command.arg(&alone).output().expect("a compiler");
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(!done.status.success(), is_refused, "{c}: {said}");
            assert!(!is_refused || said.contains("compile with -U_FORTIFY_SOURCE"), "{c}: {said}");
        }
    }
}

#[test]
fn errors_have_the_reason_and_the_way_out() {
    Program::durable(&source("durable_errors.c"), &[]).ends_well(&[]);
}

#[test]
fn a_command_that_refuses_throws_or_jumps_leaves_nothing() {
    for place in places() {
        let program = Program::durable(&source("durable_undone.cc"), &[]).with_heaps_in(&place);
        program.ends_well(&["refuse"]);
        let done = program.job(&["throw"]).run();
        assert_eq!(done.signal, Some(libc::SIGABRT), "{done}");
        program.ends_well(&["verify"]);
        let done = program.job(&["jump"]).run();
        assert!([Some(libc::SIGABRT), Some(libc::SIGKILL)].contains(&done.signal), "{done}");
        program.ends_well(&["verify"]);
    }
}

#[test]
fn the_header_stands_alone_in_every_language() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (c, cpp) = (folder.path().join("alone.c"), folder.path().join("alone.cc"));
    for header in ["spandrel_durable.h", "mangosteen.h"] {
        // Twice, as nothing but an include guard allows it.
        let text =
            format!("#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n");
        std::fs::write(&c, &text).expect("write");
        std::fs::write(&cpp, &text).expect("write");
        let path = |path: &Path| path.display().to_string();
        let strict = ["-fsyntax-only", "-pedantic", "-Wconversion"];
        for standard in ["-std=c99", "-std=c11", "-std=c17"] {
            compile("cc", &[&strict[..], &[standard, "-Wstrict-prototypes", &path(&c)]].concat());
        }
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            compile("g++", &[&strict[..], &[standard, &path(&cpp)]].concat());
        }
    }
}

#[test]
fn the_program_of_the_document_runs_as_it_stands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("visits.c");
    std::fs::write(&source, &texts("docs/durable.md", "c")[0]).expect("write");
    let program = Program::hooked("cc", &source, &["-pedantic"]);
    let run = || Job::new(program.path()).dir(folder.path()).run().expect_ok().out();
    assert_eq!([run(), run(), run()], ["1\n", "2\n", "3\n"]);
}

#[test]
fn the_program_in_cpp_of_the_document_runs_as_it_stands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("visits.cc");
    std::fs::write(&source, &texts("docs/durable.md", "cpp")[0]).expect("write");
    let program = Program::durable(&source, &["-pedantic"]);
    let run =
        |name: &str| Job::new(program.path()).dir(folder.path()).arg(name).run().expect_ok().out();
    assert_eq!(["one", "two", "one", "three"].map(run), ["1\n", "2\n", "2\n", "3\n"]);
}
