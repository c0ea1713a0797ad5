//! `spandrel tune`: what is learnt of a job, and what is no job.

use spandrel_tests::subject::{spandrel_command, subject};
use spandrel_tests::{Finished, Job, Program};
use std::path::Path;

fn tune(options: &[&str], out: &Path, words: &[&str]) -> Finished {
    subject().required_library();
    let job = Job::new(spandrel_command()).args(["tune", "--out"]).arg(out);
    job.args(options).arg("--").args(words).run()
}

#[test]
fn what_was_learnt_is_a_profile_and_is_told() {
    let program = Program::new("choosy.c");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("learnt");
    std::fs::write(&out, "old").unwrap();
    let done = tune(&["--runs", "3"], &out, &[program.path().to_str().unwrap()]).expect_ok();
    let said = done.out();
    let line = |start: &str| {
        said.lines()
            .find(|line| line.trim_start().starts_with(start))
            .unwrap_or_else(|| panic!("{said}"))
    };
    assert!(line("256B-4KiB").contains(" sys "), "{said}");
    assert!(line("jemalloc").contains("the same"), "{said}");
    assert!(said.contains("% less CPU time"), "{said}");
    assert!(!said.contains("nobody's concern"), "{said}");
    let text = std::fs::read_to_string(&out).unwrap();
    for part in ["# Learnt by spandrel tune", "\"256B-4KiB\" = \"sys\"", "\"128KiB-\" = \"mmap\""] {
        assert!(text.contains(part), "{text}");
    }
    let beside: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "nothing is left beside the profile: {beside:?}");
    let job = Job::new(spandrel_command()).args(["run", "--verbose", "--profile"]).arg(&out);
    let ran = job.args(["--", "ls", "/"]).run().expect_ok();
    assert!(ran.err().contains("template=0-256B:native,256B-4KiB:sys"), "{}", ran.err());
}

#[test]
fn where_nothing_is_better_the_default_stays() {
    let program = Program::new("choosy.c");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("learnt");
    let words = [program.path().to_str().unwrap(), "indifferent"];
    let done = tune(&["--runs", "3"], &out, &words).expect_ok();
    assert!(done.out().contains("Nothing was better"), "{}", done.out());
    assert!(std::fs::read_to_string(&out).unwrap().ends_with("version = 1\nmode = \"auto\"\n"));
}

#[test]
fn what_is_no_job_is_refused_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("learnt");
    for (words, code, part) in [
        (&["false"][..], 1, "has to succeed"),
        (&["no-such-program"], 127, "no-such-program"),
        (&["sh", "-c", "kill -9 $$"], 1, "signal: 9"),
    ] {
        let done = tune(&["--runs", "1"], &out, words).expect_code(code);
        assert!(done.err().contains(part), "{words:?}: {}", done.err());
    }
    let done = tune(&["--runs", "1"], &directory.path().join("none/x"), &["ls"]).expect_code(2);
    assert!(done.err().contains("none/x"), "{}", done.err());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
