//! Limits of memory, address space and mappings; what is freed goes back; what start-up costs.

use std::time::{Duration, Instant};

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Job, Program, installed, subject};

fn under_limit(resource: &str, megabytes: u64) {
    let program = Program::new("limited.c");
    let bytes = (megabytes << 20).to_string();
    program.run_each(ALL_MODES, |job| job.args([resource, &bytes]));
}

#[test]
fn half_a_gibibyte_of_address_space() {
    under_limit("as", 512);
}

#[test]
fn two_gibibytes_of_address_space() {
    under_limit("as", 2 << 10);
}

#[test]
fn eight_gibibytes_of_address_space() {
    under_limit("as", 8 << 10);
}

#[test]
fn sixty_four_gibibytes_of_address_space() {
    under_limit("as", 64 << 10);
}

#[test]
fn half_a_gibibyte_of_data() {
    under_limit("data", 512);
}

#[test]
fn two_gibibytes_of_data() {
    under_limit("data", 2 << 10);
}

#[test]
fn memory_locked() {
    // What is reserved and not used must not become resident; the cap saves the machine if it does.
    Program::new("locked.c").run_each(ALL_MODES, |job| job.memory_cap(4 << 30));
}

#[test]
fn huge_pages_switched_off() {
    Program::new("no_huge_pages.c").run_in_all_modes();
}

#[test]
fn thirty_two_thousand_large_objects() {
    let program = Program::new("many_objects.c");
    // mimalloc asks for huge pages, so that each object would cost its whole size: fewer will do there.
    program.run_each(&["mimalloc"], |job| job.arg("6000"));
    let others: Vec<&str> = ALL_MODES.iter().copied().filter(|m| *m != "mimalloc").collect();
    program.run_each(&others, |job| job);
}

#[test]
fn freed_memory_goes_back() {
    Program::new("memory_drop.c").run_in_all_modes();
}

/// The fastest of many starts, in turns, as other work on the machine only adds to it.
fn fastest_starts(jobs: [&dyn Fn() -> Job; 2]) -> [Duration; 2] {
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..60 {
        for (job, fastest) in jobs.iter().zip(&mut fastest) {
            let job = job();
            let begun = Instant::now();
            job.run().expect_ok();
            *fastest = begun.elapsed().min(*fastest);
        }
    }
    fastest
}

/// The most memory that a shell had, in KiB.
fn peak_of_a_shell(job: Job) -> u64 {
    let script = "while read -r name value unit; do
        case $name in VmHWM:) echo $value ;; esac
    done < /proc/self/status";
    let done = job.args(["-c", script]).run().expect_ok();
    done.out().trim().parse().unwrap_or_else(|_| panic!("{done}"))
}

/// Start-up may cost 1 ms and 4 MiB; the time is held loosely here, benchmarks hold it tightly.
#[test]
fn starting_is_cheap() {
    let (program, shell) = (installed("true"), installed("sh"));
    for mode in subject().modes(ALL_MODES) {
        let [without, with] =
            fastest_starts([&|| Job::new(&program), &|| subject().job(&program, mode)]);
        let slower = with.saturating_sub(without);
        assert!(
            slower < Duration::from_millis(3),
            "mode {mode}: {without:?} without, {with:?} with"
        );

        let without = peak_of_a_shell(Job::new(&shell));
        let with = peak_of_a_shell(subject().job(&shell, mode));
        assert!(with <= without + 4096, "mode {mode}: {without} KiB without, {with} KiB with");
    }
}
