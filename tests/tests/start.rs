//! What it costs to start a program. Alone in its file, so that no other test runs beside it.

use std::time::Duration;

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Job, installed, subject};

/// The least processor time of many starts, in turns, as other work on the machine only adds to it.
fn cheapest_starts(jobs: [&dyn Fn() -> Job; 2]) -> [Duration; 2] {
    let mut cheapest = [Duration::MAX; 2];
    for _ in 0..60 {
        for (job, cheapest) in jobs.iter().zip(&mut cheapest) {
            *cheapest = job().run().expect_ok().cpu.min(*cheapest);
        }
    }
    cheapest
}

/// The most memory that a shell had, in KiB.
fn peak_of_a_shell(job: Job) -> u64 {
    let script = "while read -r name value unit; do
        case $name in VmHWM:) echo $value ;; esac
    done < /proc/self/status";
    let done = job.args(["-c", script]).run().expect_ok();
    done.out().trim().parse().unwrap_or_else(|_| panic!("{done}"))
}

/// Start-up may cost 1 ms and 4 MiB. Time is held loosely here, as machines differ: to 2 ms, or to
/// what it costs the machine to start a program at all. Benchmarks hold it tightly.
#[test]
fn starting_is_cheap() {
    let (program, shell) = (installed("true"), installed("sh"));
    for mode in subject().modes(ALL_MODES) {
        let [without, with] =
            cheapest_starts([&|| Job::new(&program), &|| subject().job(&program, mode)]);
        let more = with.saturating_sub(without);
        println!("mode {mode}: {without:?} without, {with:?} with");
        assert!(
            more < without.max(Duration::from_millis(2)),
            "mode {mode}: {without:?} without, {with:?} with"
        );

        let without = peak_of_a_shell(Job::new(&shell));
        let with = peak_of_a_shell(subject().job(&shell, mode));
        assert!(with <= without + 4096, "mode {mode}: {without} KiB without, {with} KiB with");
    }
}
