//! What is learnt while a program runs must not be seen by it. `SPANDREL_TUNER=restless` has windows follow
//! each other, in which any allocator may serve any size, and sizes change hands for no reason.

use spandrel_tests::{Job, Program, subject};

fn restless(programs: &[&str]) {
    for program in programs {
        Program::new(program).run_each(&["auto"], |job| job.env("SPANDREL_TUNER", "restless"));
    }
}

#[test]
fn threads_that_hand_objects_to_each_other() {
    restless(&["producer_consumer.c", "threaded.cc", "thread_churn.c"]);
}

#[test]
fn objects_that_are_resized_keep_their_contents() {
    restless(&["realloc_walk.c", "realloc_zero.c", "realloc_append.c"]);
}

#[test]
fn forks_in_the_middle_of_it() {
    restless(&["fork_child.c", "fork_threads.c", "fork_in_handler.c", "vfork_alloc.c"]);
}

#[test]
fn aligned_objects_small_stacks_signals_and_destructors() {
    let programs =
        ["aligned.c", "small_stack.c", "signals.c", "tls_destructors.cc", "main_exits.c"];
    restless(&programs);
}

const SCRIPT: &str = "
import json, random
random.seed(7)
kept = {}
for step in range(150000):
    size = random.choice([1, 3, 40, 600])
    kept[random.randrange(20000)] = [str(step)] * size if step % 100 else 'x' * 300000
print(len(json.dumps(kept)))
";

fn python() -> Job {
    Job::new("python3").arg("-c").arg(SCRIPT).env("PYTHONMALLOC", "malloc")
}

#[test]
fn python_comes_to_the_same_while_every_allocator_serves_it() {
    let Some(library) = subject().library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stats.json");
    let job = python().env("LD_PRELOAD", library).env("SPANDREL_TUNER", "restless");
    let done = job.env("SPANDREL_STATS", &file).run();
    assert_eq!(done.out(), python().run().out());
    let text = std::fs::read_to_string(&file).expect("statistics");
    let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(stats["tuner"]["windows"].as_u64() > Some(10), "{}", stats["tuner"]);
    let requests = stats["requests"].as_array().expect("requests");
    for allocator in ["sys", "mimalloc", "jemalloc", "native", "mmap"] {
        let has_served = |row: &serde_json::Value| {
            row["backend"] == allocator && row["allocs"].as_u64() > Some(0)
        };
        assert!(requests.iter().any(has_served), "nobody asked {allocator}: {text}");
    }
}

/// What was learnt on this kind of machine is an order, on another where learning begins.
#[test]
fn a_profile_from_elsewhere_is_where_learning_begins() {
    let Some(library) = subject().library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("p.profile");
    let file = folder.path().join("stats.json");
    let run = |machine: &str, settings: &[(&str, &str)]| -> serde_json::Value {
        let learnt = format!("[learnt]\nmachines = [\"{machine}\"]\n");
        let text = format!("version = 1\nmode = \"jemalloc\"\n{learnt}");
        std::fs::write(&profile, text).expect("write");
        let job = python().env("LD_PRELOAD", library).env("SPANDREL_PROFILE", &profile);
        let job = settings.iter().fold(job, |job, (name, value)| job.env(name, value));
        let done = job.env("SPANDREL_STATS", &file).run();
        assert_eq!(done.err(), "");
        let text = std::fs::read_to_string(&file).expect("statistics");
        serde_json::from_str(&text).expect("JSON")
    };
    if !subject().modes(&["jemalloc"]).contains(&"jemalloc") {
        return;
    }
    let of_jemalloc = |stats: &serde_json::Value| -> f64 {
        let rows = stats["requests"].as_array().expect("requests");
        let count = |name: Option<&str>| -> u64 {
            let is_it = |row: &&serde_json::Value| name.is_none_or(|name| row["backend"] == name);
            rows.iter().filter(is_it).filter_map(|row| row["allocs"].as_u64()).sum()
        };
        count(Some("jemalloc")) as f64 / count(None) as f64
    };
    let model = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.expect("a model").trim_start_matches([' ', '\t', ':']);
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let thp = thp.unwrap_or_default();
    let thp = thp.split(['[', ']']).nth(1).unwrap_or("madvise");
    let here = run(&format!("{model}, 999 cores, huge pages: {thp}"), &[]);
    assert!(here["mode"] == "jemalloc" && of_jemalloc(&here) > 0.99, "{here:#}");
    let elsewhere = "Other, 2 cores, huge pages: always";
    let there = run(elsewhere, &[("SPANDREL_TUNER", "0")]);
    assert!(there["mode"] == "auto" && of_jemalloc(&there) > 0.9, "{there:#}");
    assert!(there["tuner"].is_null(), "{there:#}");
    // The tuner leaves out what it measured while others had the processor.
    let mut learning = run(elsewhere, &[]);
    for _ in 0..4 {
        if learning["tuner"]["windows"].as_u64() == Some(0) {
            learning = run(elsewhere, &[]);
        }
    }
    assert!(learning["tuner"]["windows"].as_u64() > Some(0), "{learning:#}");
    let bounded = run(elsewhere, &[("SPANDREL_TUNER", "0"), ("SPANDREL_LIMIT", "2GiB")]);
    assert!(of_jemalloc(&bounded) == 0.0, "what it serves is not counted: {bounded:#}");
    let said = run(elsewhere, &[("SPANDREL_MODE", "native")]);
    assert!(said["mode"] == "native" && of_jemalloc(&said) == 0.0, "{said:#}");
}

#[test]
fn a_setting_that_is_none_is_said_once() {
    let Some(library) = subject().library() else { return };
    let job = Job::new("true").env("LD_PRELOAD", library).env("SPANDREL_TUNER", "fast");
    let said = job.run().err();
    assert!(said.contains("SPANDREL_TUNER: 'fast' is not 1 or 0"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
