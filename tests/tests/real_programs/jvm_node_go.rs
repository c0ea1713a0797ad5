//! Programs with a heap of their own beside the allocator: Java, Node.js, Go with cgo.

use std::path::PathBuf;
use std::sync::OnceLock;

use spandrel_tests::job::seconds;
use spandrel_tests::{Job, Program, installed};

use crate::compare::{
    account, heavy, loads_into, program_file, same_in_every_mode, same_in_main_modes,
};

#[test]
fn node() {
    let _alone = heavy();
    loads_into("node", &["--version"]);
    same_in_main_modes(|run| {
        account(&run.job("node").arg(program_file("job.mjs")).memory_cap(16 << 30).run(), 6)
    });
}

#[test]
fn java() {
    let _alone = heavy();
    loads_into("java", &["-Xmx256m", "-version"]);
    same_in_main_modes(|run| {
        let compile = run.job("javac").args(["-d", "."]).arg(program_file("Job.java")).run();
        let launch = run.job("java").args(["-Xmx512m", "-Xint", "-cp", ".", "Job", "few"]).run();
        let collect =
            run.job("java").args(["-Xmx512m", "-XX:+UseParallelGC", "-cp", ".", "Job"]).run();
        // Straight from the source: the compiler inside of the virtual machine.
        let direct = run.job("java").arg("-Xmx512m").arg(program_file("Job.java")).run();
        let runs = [(compile, 0), (launch, 4), (collect, 4), (direct, 4)];
        runs.iter().map(|(done, code)| account(done, *code)).collect()
    });
}

/// Built once, by a compiler without the library; needs no network.
fn go_program() -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::copy(program_file("cgo.go"), folder.path().join("main.go")).expect("copy");
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("go-build");
        Job::new(installed("go"))
            .args(["build", "-o", "cgo", "main.go"])
            .dir(folder.path())
            .env("CGO_ENABLED", "1")
            .env("GOCACHE", cache)
            .env("GOFLAGS", "-mod=mod")
            .env("GO111MODULE", "off")
            .env("GOTOOLCHAIN", "local")
            .timeout(seconds(400))
            .run()
            .expect_ok();
        folder
    });
    folder.path().join("cgo")
}

#[test]
fn go_with_cgo() {
    let _alone = heavy();
    let program = go_program().display().to_string();
    loads_into(&program, &["few"]);
    same_in_main_modes(|run| account(&run.job(&program).run(), 8));
}

#[test]
fn threaded_cpp_program() {
    let program = Program::new("threaded.cc");
    let path = program.path().display().to_string();
    same_in_every_mode(|run| account(&run.job(&path).run(), 0));
}
