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

/// No store is named: the kernel names the pages.
#[test]
fn pages_are_compared_of_what_an_unchanged_program_stores() {
    for place in places() {
        for level in ["-O0", "-O2"] {
            let program = Program::durable(&source("durable_threads.c"), &["-DPAGES", level]);
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
        for way in ["-DTRANSLATED", "-DPAGES"] {
            let program = Program::durable(&history, &[way, "-O2"]);
            is_linearizable(&program.with_heaps_in(&place), kills);
        }
    }
}

#[test]
fn two_states_of_a_process_are_apart() {
    let program = Program::hooked("cc", &source("durable_two.c"), &["-std=c11"]);
    program.is_killed(&["fill"]);
    program.ends_well(&["verify"]);
    program.ends_well(&["copies"]);
}

/// Compilers of C and of C++ whose hooks are known. `make setup` installs them.
const COMPILERS: [(&str, &str); 2] = [("gcc", "g++"), ("clang", "clang++")];

/// The document's rows of stores, and the kinds of the two programs that each is made of.
const ROWS: [(&str, &[&str]); 11] = [
    (
        "of 1 to 16 bytes, bit fields, members of packed structures, volatile, compound, vectors",
        &[
            "stores of 1 to 16 bytes",
            "bit fields",
            "members of packed structures",
            "volatile stores",
            "compound assignments",
            "vector stores",
        ],
    ),
    ("`long double`", &["long double"]),
    (
        "arrays, loops, assignments of structures",
        &["arrays", "fills by a loop", "copies by a loop", "assignments of structures"],
    ),
    ("a structure that a function returns into the state", &["structures that functions return"]),
    (
        "`memcpy`, `memmove`, `memset`, `strcpy` and its like",
        &["memcpy, memmove, memset", "strcpy and its like"],
    ),
    (
        "`__builtin_memcpy`, `__builtin_memset`, which libstdc++ uses for bytes: `std::copy`, `std::fill`, `std::basic_string`",
        &[
            "__builtin_memcpy, __builtin_memset",
            "std::copy and std::fill of bytes",
            "std::basic_string with an allocator",
        ],
    ),
    ("streaming stores", &["streaming stores"]),
    ("atomic operations", &["atomic operations", "std::atomic"]),
    (
        "constructors, pointers to virtual functions, `std::vector`, `std::sort`, `std::array`, `std::atomic`",
        &[
            "constructors, pointers to virtual functions, assignments",
            "std::swap, std::array",
            "std::vector, std::sort",
            "std::atomic",
        ],
    ),
    (
        "`std::map`, `std::set`: libstdc++.so balances the tree",
        &["std::map, whose tree libstdc++.so balances"],
    ),
    (
        "assembly, system calls (`read`), functions of the C library that are not named above (`snprintf`, `qsort`)",
        &["assembly", "read", "snprintf", "qsort"],
    ),
];

/// What the document says of a row: a cell for each compiler, whose major version stands at its head.
fn document() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(workspace().join("docs/durable.md")).expect("the document");
    let lines = text.lines().skip_while(|line| !line.starts_with("| stores | gcc"));
    let table = lines.take_while(|line| line.starts_with('|')).filter(|line| !line.contains("--"));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|s| s.trim().into()).collect();
    table.map(cells).collect()
}

/// The major version of a compiler.
fn version_of(compiler: &str) -> String {
    let output = Command::new(compiler).arg("-dumpversion").output();
    let output = output.unwrap_or_else(|e| panic!("install {compiler}: make setup ({e})"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn each_kind_of_store_is_captured_as_the_document_says() {
    let table = document();
    let rows: Vec<_> = table.iter().skip(1).map(|row| row[0].as_str()).collect();
    assert_eq!(rows, ROWS.map(|(row, _)| row));
    for (column, (c, cpp)) in (1..).zip(COMPILERS) {
        let mut missed = Vec::new();
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            for (compiler, file, standard) in [
                (c, "durable_stores.c", "-std=gnu11"),
                (cpp, "durable_stores_cpp.cc", "-std=c++17"),
            ] {
                let program = Program::hooked(compiler, &source(file), &[standard, level]);
                let done = program.job(&[]).run().expect_ok();
                let kinds = done.out();
                let kinds = kinds.lines().filter_map(|line| line.strip_prefix("missed: "));
                missed.extend(kinds.map(str::to_owned));
            }
        }
        // Other versions may capture more, and no less: the programs say that of each kind.
        let head = format!("{c} {}", version_of(c));
        if table[0][column] != head {
            println!("{head} is not the compiler of the document, {}", table[0][column]);
            continue;
        }
        for (row, (name, kinds)) in table.iter().skip(1).zip(ROWS) {
            let is_missed = |kind: &&str| missed.iter().any(|missed| missed == kind);
            let is_all = !kinds.iter().any(is_missed);
            assert_eq!(row[column] == "all", is_all, "{c}, {name}: {missed:?}");
            assert!(is_all || row[column].starts_with("missed"), "{c}, {name}");
        }
    }
}

/// What the document says of the stable compiler's hooks for Rust: why no state uses them.
#[test]
fn stable_rusts_hooks_miss_a_copy_of_a_structure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("program").display().to_string();
    let file = abi_dir().join("rust_hooks.rs").display().to_string();
    let hooks = "llvm-args=-sanitizer-coverage-level=1 -sanitizer-coverage-trace-stores";
    let output = Command::new("rustc")
        .args(["--edition", "2024", "-O", "-C", "passes=sancov-module", "-C", hooks])
        .args(["-o", &program, &file])
        .output()
        .expect("the compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = Job::new(&program).run().expect_ok().out();
    assert_eq!(said, "a word of 8 bytes: 8\na structure of 96 bytes: 0\n");
}

/// Some distributions have it on: what is stored by the compiler in the place of a fortified function has no hook.
#[test]
fn hooks_beside_fortified_functions_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("alone.c");
    std::fs::write(&alone, "#include <spandrel_durable.h>\n").expect("write");
    for (c, _) in COMPILERS {
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
fn a_state_is_opened_where_the_first_thread_has_ended() {
    for place in places() {
        Program::durable(&source("durable_main_ends.c"), &[]).with_heaps_in(&place).ends_well(&[]);
    }
}

#[test]
fn errors_have_the_reason_and_the_way_out() {
    Program::durable(&source("durable_errors.c"), &[]).ends_well(&[]);
}

#[test]
fn a_command_that_refuses_throws_aborts_or_jumps_leaves_nothing() {
    for place in places() {
        for way in ["-DNAMED", "-DPAGES", "-DTRANSLATED"] {
            let program = Program::durable(&source("durable_undone.cc"), &[way]);
            let program = program.with_heaps_in(&place);
            program.ends_well(&["refuse"]);
            for what in ["throw", "abort"] {
                let done = program.job(&[what]).run();
                assert_eq!(done.signal, Some(libc::SIGABRT), "{way} {what}: {done}");
                program.ends_well(&["verify"]);
            }
            let done = program.job(&["jump"]).run();
            let ends = [Some(libc::SIGABRT), Some(libc::SIGKILL)];
            assert!(ends.contains(&done.signal), "{way}: {done}");
            program.ends_well(&["verify"]);
        }
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
