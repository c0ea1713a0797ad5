//! `SPANDREL_GUARD`: objects between guard pages, and what is said of mistakes with them.

use spandrel_tests::subject::{installed, spandrel_command, subject};
use spandrel_tests::{Finished, Job, Program, Source};

/// With names of functions, so that stacks show them.
fn program() -> Program {
    Program::with(&Source { file: "guarded.c", flags: &["-rdynamic"] })
}

fn run(program: &Program, mode: &str, what: &str, one_in: &str) -> Finished {
    subject().job(program.path(), mode).arg(what).env("SPANDREL_GUARD", one_in).run()
}

#[test]
fn mistakes_are_found_where_they_happen_and_told_with_both_stacks() {
    subject().required_library();
    let program = program();
    const FAULT: Option<i32> = Some(11);
    const ABORT: Option<i32> = Some(6);
    for (what, signal, said, has_freed) in [
        ("overflow", FAULT, "buffer overflow: write of 0x", false),
        ("underflow", FAULT, "buffer underflow: read of 0x", false),
        ("behind", ABORT, "the bytes behind an object of 60 bytes", false),
        ("read-after-free", FAULT, "use after free: read of 0x", true),
        ("write-after-free", FAULT, "use after free: write of 0x", true),
        ("twice", ABORT, "freed twice (an object of 64 bytes)", true),
        ("inside", ABORT, "not the beginning of an object", false),
        ("calloc-overflow", FAULT, "buffer overflow: write of 0x", false),
        ("aligned-overflow", FAULT, "buffer overflow: write of 0x", false),
        ("aligned-behind", ABORT, "the bytes behind an object of 60 bytes", false),
    ] {
        for mode in ["auto", "native"] {
            let done = run(&program, mode, what, "1");
            assert_eq!(done.signal, signal, "{what}: {done}");
            let text = done.err();
            assert!(text.contains(said), "{what}: {text}");
            assert!(text.contains("allocated by thread") && text.contains("make+0x"), "{text}");
            assert_eq!(text.contains("freed by thread") && text.contains("end+0x"), has_freed);
        }
    }
}

#[test]
fn a_program_without_mistakes_runs_as_ever() {
    subject().required_library();
    let program = program();
    for mode in ["auto", "native", "sys", "template"] {
        for one_in in ["1", "7", "1000", "0"] {
            let done = run(&program, mode, "none", one_in).expect_ok();
            let lines = done.library_lines();
            if mode == "sys" && one_in != "0" {
                assert_eq!(lines.len(), 1, "{done}");
                assert!(lines[0].contains("SPANDREL_GUARD: without effect in mode sys"), "{done}");
            } else {
                assert!(lines.is_empty(), "{done}");
            }
        }
    }
}

#[test]
fn real_programs_run_guarded() {
    let code = "import json; print(sum(len(json.dumps([i] * (i % 50))) for i in range(20000)))";
    let python = installed("python3");
    let job = |guard: &str| {
        let job = subject().job(&python, "native").args(["-c", code]);
        job.env("PYTHONMALLOC", "malloc").env("SPANDREL_GUARD", guard).run().expect_ok()
    };
    assert_eq!(job("1").out(), job("0").out());
    let job = Job::new(spandrel_command()).args(["run", "--", "true"]);
    let done = job.env("SPANDREL_GUARD", "often").run().expect_code(2);
    assert!(done.err().contains("SPANDREL_GUARD in the environment: 'often'"), "{done}");
}
