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
    assert!(std::fs::read_to_string(&out).unwrap().contains("version = 1\nmode = \"auto\"\n"));
}

fn merge(profiles: &[&Path], out: &Path) -> Finished {
    let job = Job::new(spandrel_command()).args(["tune", "--out"]).arg(out);
    profiles.iter().fold(job.arg("--merge"), |job, path| job.arg(path)).run()
}

#[test]
fn profiles_of_several_jobs_become_one() {
    let program = Program::new("choosy.c");
    let directory = tempfile::tempdir().unwrap();
    let [one, two, out] = ["one", "two", "out"].map(|name| directory.path().join(name));
    let program = program.path().to_str().unwrap();
    tune(&["--runs", "3"], &one, &[program]).expect_ok();
    tune(&["--runs", "1"], &two, &[program, "indifferent"]).expect_ok();
    let done = merge(&[&one, &two], &out).expect_ok();
    assert!(done.out().contains("256B-4KiB") && done.out().contains("not measured"), "{done}");
    let text = std::fs::read_to_string(&out).unwrap();
    for part in ["# Merged by spandrel tune", "from 2 profiles", "[learnt.sizes.\"256B-4KiB\"]"] {
        assert!(text.contains(part), "{text}");
    }
    // What is of one job alone is what that job has learnt.
    merge(&[&one], &out).expect_ok();
    let mode = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| line.starts_with('"')).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(mode(&out), mode(&one));
    let job = Job::new(spandrel_command()).args(["run", "--profile"]).arg(&out);
    job.args(["--", "ls", "/"]).run().expect_ok();
}

#[test]
fn what_cannot_be_merged_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let [path, out] = ["profile", "out"].map(|name| directory.path().join(name));
    let learnt = "[learnt]\nmachines = [\"m\"]\ncpu_ms = 1\n";
    for (text, part) in [
        ("version = 1\nmode = \"native\"\n".into(), "does not say what it is from"),
        ("version = 1\nmood = 3\n".into(), "line 2"),
        ("version = 2\n".into(), "version 2"),
        (format!("version = 1\nmode = \"auto\"\n{learnt}x = 1\n"), "line 6"),
        (
            format!(
                "version = 1\nmode = \"auto\"\n{learnt}[learnt.sizes.\"0-1B\"]\nrequests = 1\nbytes = 1\n"
            ),
            "'0-1B'",
        ),
        (format!("version = 1\nmode = \"auto\"\n{}", learnt.replace('1', "nan")), "above 0"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let done = merge(&[&path], &out).expect_code(2);
        let said = done.err();
        assert!(said.contains(part) && said.contains("profile"), "{text}: {said}");
    }
    let done = merge(&[&directory.path().join("none")], &out).expect_code(2);
    assert!(done.err().contains("none"), "{done}");
    let done = merge(&[&path], &path).expect_code(2);
    assert!(done.err().contains("the file that is read"), "{done}");
    let job = Job::new(spandrel_command()).args(["tune", "--merge"]).arg(&path);
    job.args(["--", "ls"]).run().expect_code(2);
    assert!(!out.exists());
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
