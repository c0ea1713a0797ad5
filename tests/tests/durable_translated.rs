//! Translated commands of `libspandrel_durable`: ordinary C and C++, and libraries that know nothing of a durable state, change one. No store is named.

use std::path::{Path, PathBuf};

use spandrel_tests::Finished;
use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, built, compile};

fn source(file: &str) -> PathBuf {
    abi_dir().join(file)
}

/// Where states lie in the memory of the machine, and on its disk.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

/// A number of the environment that `make soak` sets: times as much of everything.
fn times() -> u64 {
    std::env::var("SPANDREL_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Compilers of C++. `make setup` installs them.
const COMPILERS: [&str; 2] = ["g++", "clang++"];

/// The number behind a word of the output.
#[track_caller]
fn number_behind(word: &str, done: &Finished) -> u64 {
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    let number = out.split(word).nth(1).and_then(|rest| rest.split_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {word}: {done}"))
}

/// Runs commands with a comparison of all that has changed: the number of blocks.
#[track_caller]
fn changed(program: &Program, arguments: &[&str]) -> u64 {
    let done = program.job(arguments).run().expect_ok();
    // Of some 10^8 words that zlib makes of texts one may look like an address of the process's heap: 0x555555640000 was one.
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    let is_number =
        |line: &str| line.contains("if that is a pointer") && arguments.contains(&"zlib");
    assert!(told.lines().all(is_number), "{done}");
    number_behind("changed", &done)
}

#[test]
fn all_that_ordinary_cpp_changes_is_noted() {
    let commands = (1000 * times()).to_string();
    for compiler in COMPILERS {
        for level in ["-O0", "-O2"] {
            let program = Program::durable_by(compiler, &source("durable_cpp_plain.cc"), &[level]);
            let program = program.with_heaps_in(Path::new("/dev/shm"));
            let blocks = changed(&program, &["verified", "work", &commands]);
            println!("{compiler} {level}: {blocks} blocks");
            assert!(blocks > 20_000 * times(), "{blocks}");
        }
    }
}

#[test]
fn what_ordinary_cpp_was_told_is_there_after_kills() {
    for place in places() {
        for compiler in COMPILERS {
            for level in ["-O0", "-O2"] {
                let program =
                    Program::durable_by(compiler, &source("durable_cpp_plain.cc"), &[level]);
                let program = program.with_heaps_in(&place);
                program.is_killed_in_the_middle(&["translated", "churn"], 2 * times());
                program.ends_well(&["translated", "verify"]);
                program.ends_well(&["verified", "verify"]);
            }
        }
    }
}

/// The libraries of the test, with Lua where that is installed.
fn libraries() -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut flags, mut names) = (vec!["-lsqlite3", "-lz"], vec!["zlib", "sqlite"]);
    if Path::new("/usr/include/lua5.4/lua.h").is_file() {
        flags.extend(["-DWITH_LUA", "-llua5.4"]);
        names.push("lua");
    }
    (flags, names)
}

#[test]
fn all_that_libraries_change_is_noted() {
    let (flags, names) = libraries();
    let commands = (400 * times()).to_string();
    for name in names {
        let program = Program::durable(&source("durable_c_libraries.c"), &flags);
        let program = program.with_heaps_in(Path::new("/dev/shm"));
        let blocks = changed(&program, &["verified", name, "work", &commands]);
        println!("{name}: {blocks} blocks");
        assert!(blocks > 20_000 * times(), "{name}: {blocks}");
    }
}

#[test]
fn what_libraries_were_told_is_there_after_kills() {
    let (flags, names) = libraries();
    for place in places() {
        for name in &names {
            let program = Program::durable(&source("durable_c_libraries.c"), &flags);
            let program = program.with_heaps_in(&place);
            program.is_killed_in_the_middle(&["translated", name, "churn"], 2 * times());
            program.ends_well(&["verified", name, "verify"]);
        }
    }
}

#[test]
fn commands_allocate_in_the_state_by_whichever_allocator() {
    let program = Program::durable(&source("durable_translated.cc"), &[]);
    program.ends_well(&["allocate"]);
    // Another allocator has functions and operators of its own.
    let program = Program::durable(&source("durable_translated.cc"), &[]);
    let done = program.job(&["allocate"]).env("LD_PRELOAD", built("libspandrel.so")).run();
    done.expect_ok();
}

/// Allocators whose functions are in no usual table of symbols, or in a version that is hidden.
#[test]
fn functions_of_an_odd_allocator_are_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let versions = folder.path().join("versions");
    std::fs::write(&versions, "GLIBC_2.2.5 { }; GLIBC_2.16 { };").expect("a script");
    let versions = format!("-Wl,--version-script={}", versions.display());
    let ways: [&[&str]; 3] = [&["-Wl,--hash-style=sysv"], &["-DHIDDEN", &versions], &["-DCHOSEN"]];
    let file = source("odd_allocator.c");
    // A state is that of a program with one of them.
    let program = || Program::durable(&source("durable_translated.cc"), &[]);
    for (number, way) in ways.into_iter().enumerate() {
        let library = folder.path().join(format!("odd{number}.so"));
        let files = [file.to_str().unwrap(), "-o", library.to_str().unwrap()];
        let flags = ["-O1", "-fno-builtin", "-shared", "-fPIC"];
        compile("cc", &[&flags, way, &files[..]].concat());
        let done = program().job(&["allocate"]).env("LD_PRELOAD", &library).run();
        done.expect_ok();
    }
    // The C library's own, whose functions have hidden versions.
    let debug = "libc_malloc_debug.so.0";
    let folders = ["/lib/x86_64-linux-gnu", "/usr/lib64"];
    if folders.iter().any(|folder| Path::new(folder).join(debug).exists()) {
        let program = program();
        let job = program.job(&["allocate"]).env("LD_PRELOAD", debug);
        job.env("GLIBC_TUNABLES", "glibc.malloc.check=3").run().expect_ok();
    }
}

#[test]
fn jumps_and_exceptions_stay_within_a_command_or_end_the_process() {
    let program = Program::durable(&source("durable_translated.cc"), &[]);
    program.ends_well(&["jump"]);
    let done = program.job(&["throw"]).run();
    assert_eq!(done.signal, Some(libc::SIGABRT), "{done}");
    let count = number_behind("count", &done);
    let after = program.job(&["open"]).run().expect_ok();
    assert_eq!(number_behind("count", &after), count);
}

/// `/lib64/ld-linux-x86-64.so.2 ./program`: it is this program that is started again, with all arguments.
#[test]
fn a_program_that_is_an_argument_of_its_loader_is_started_again() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !Path::new(loader).exists() {
        return;
    }
    let program = Program::durable(&source("durable_translated.cc"), &[]);
    for options in [&[][..], &["--argv0", "another name"]] {
        for what in ["jump", "open"] {
            let mut job = spandrel_tests::Job::new(loader);
            for option in options {
                job = job.arg(option);
            }
            let done = job
                .arg(program.path())
                .arg(program.heaps().join("heap"))
                .arg(what)
                .run()
                .expect_ok();
            assert!(what == "jump" || number_behind("count", &done) > 5, "{done}");
        }
    }
}

#[test]
fn another_program_or_other_addresses_are_refused() {
    let file = source("durable_translated.cc");
    let program = Program::durable(&file, &[]);
    program.ends_well(&["open"]);
    let refused = |program: &Program, path: &Path, what: &str, errno: i32, reason: &str| {
        let done = spandrel_tests::Job::new(program.path()).arg(path).arg(what).run();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.code, Some(3), "{done}");
        assert!(said.starts_with(&format!("{errno} ")) && said.contains(reason), "{done}");
    };
    let state = program.heaps().join("heap");
    refused(&program, &state, "drawn", libc::ENOTSUP, "spandrel_durable_fix_addresses");
    let other = Program::durable(&file, &["-DANOTHER_BUILD"]);
    refused(&other, &state, "open", libc::EPROTOTYPE, "another build of the program");
    // What is preloaded has other libraries lie elsewhere.
    let moved = program.job(&["open"]).env("LD_PRELOAD", built("libspandrel.so")).run();
    let said = String::from_utf8_lossy(&moved.stdout).into_owned();
    assert_eq!(moved.code, Some(3), "{moved}");
    assert!(said.contains("was at another address when the state was made"), "{moved}");
    // Linked for fixed addresses it needs no other start.
    let fixed = Program::durable(&file, &["-no-pie"]);
    for count in 0..3 {
        assert_eq!(number_behind("count", &fixed.job(&["drawn"]).run().expect_ok()), count);
    }
    // What leads into a library is named.
    let done = fixed.job(&["leads"]).run().expect_ok();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let words = ", _IO_2_1_stdout_), which lies elsewhere in the next process";
    assert!(said.contains("/libc.so.6+0x") && said.contains(words), "{done}");
    program.ends_well(&["open"]);
}

/// What the C library unmaps for a child lies between the libraries whose code is translated; that code stays, and no memory for code is used up.
#[test]
fn commands_run_other_programs_again_and_again() {
    for place in places() {
        let program = Program::durable(&source("durable_children.cc"), &["-std=c++17"]);
        let program = program.with_heaps_in(&place);
        for end in [100, 200] {
            assert_eq!(program.job(&["100"]).run().expect_ok().out(), format!("{end}\n"));
        }
    }
}

/// A wrong free ends the process, as an allocator's does, and the command is not there afterwards.
#[test]
fn wrong_frees_of_a_command_end_the_process() {
    let program = Program::durable(&source("durable_wrong_frees.c"), &[]);
    let ways =
        [("twice", "free"), ("middle", "free"), ("realloc", "realloc"), ("moved", "realloc")];
    for (before, (how, function)) in ways.into_iter().enumerate() {
        let done = program.job(&[how]).run();
        let line = format!("spandrel: {function} of what is no object of the command's state\n");
        assert!(!done.ok() && done.err().contains(&line), "{how}: {done}");
        assert_eq!(program.job(&[]).run().expect_ok().out(), format!("{}\n", before + 1));
    }
}

/// Also what another thread has stored for it, which the translated code knows nothing of.
#[test]
fn a_refused_command_leaves_nothing_of_other_threads() {
    for stores in ["1", "2"] {
        Program::durable(&source("durable_outside.cc"), &["-std=c++17"])
            .job(&[stores])
            .run()
            .expect_ok();
    }
}

/// Cancellation waits for the end of a command: the state goes on.
#[test]
fn cancelled_threads_leave_the_state_to_others() {
    for stores in ["0", "1"] {
        for kind in ["deferred", "at-once"] {
            let program = Program::durable(&source("durable_cancelled.c"), &[]);
            let done = program.job(&[stores, kind]).run().expect_ok();
            assert!(["2\n", "3\n"].contains(&&*done.out()), "{done}");
        }
    }
}

/// Code of each is translated near the libraries, where the room that a state takes for itself is not.
#[test]
fn twenty_states_are_open_at_once() {
    for place in places() {
        let program = Program::durable(&source("durable_many.c"), &[]).with_heaps_in(&place);
        program.job(&["20"]).run().expect_ok();
    }
}
