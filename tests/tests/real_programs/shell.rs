//! Shells and the small programs of every day.

use crate::compare::{
    account, heavy, loads_into, program_file, same_in_every_mode, same_in_main_modes,
};

fn script(name: &str) -> String {
    std::fs::read_to_string(program_file(name)).expect("read a script of tests/programs")
}

#[test]
fn bash() {
    loads_into("bash", &["--version"]);
    let script = script("shell.bash");
    same_in_every_mode(|run| account(&run.shell("bash", &script), 7));
}

#[test]
fn coreutils() {
    let script = script("coreutils.sh");
    for program in ["sort", "wc", "sha256sum", "ls", "cat"] {
        loads_into(program, &["--version"]);
    }
    same_in_every_mode(|run| account(&run.shell("bash", &script), 0));
}

#[test]
fn perl() {
    loads_into("perl", &["-v"]);
    same_in_every_mode(|run| account(&run.job("perl").arg(program_file("job.pl")).run(), 3));
}

#[test]
fn git() {
    let _alone = heavy();
    loads_into("git", &["--version"]);
    let script = script("git.sh");
    same_in_main_modes(|run| account(&run.shell("bash", &script), 0));
}

#[test]
fn tar_gzip_xz() {
    for program in ["tar", "gzip", "xz"] {
        loads_into(program, &["--version"]);
    }
    let script = script("archives.sh");
    same_in_every_mode(|run| account(&run.shell("bash", &script), 0));
}

#[test]
fn sqlite() {
    loads_into("sqlite3", &["--version"]);
    let script = script("job.sql");
    same_in_every_mode(|run| {
        let job = run.job("sqlite3").args(["-batch", "test.db"]).stdin(script.clone());
        account(&job.run(), 1)
    });
}

/// Requests of all sizes by several threads and processes, at random; it looks whether they hold what was written.
#[test]
fn stress_ng() {
    let _alone = heavy();
    loads_into("stress-ng", &["--version"]);
    same_in_main_modes(|run| {
        let ways = [
            "--malloc-ops 200000",
            "--malloc-ops 200000 --malloc-pthreads 4",
            "--malloc-ops 20000 --malloc-touch --malloc-bytes 2m --malloc-max 300",
        ];
        let stress = |way: &str| {
            let job = run.job("stress-ng").args(["--quiet", "--verify", "--malloc", "2"]);
            account(&job.args(way.split(' ')).run(), 0)
        };
        ways.into_iter().map(stress).collect()
    });
}
