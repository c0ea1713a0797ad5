//! Lines of the shell in the documents do what they say. What README shows is in `readme.rs`, and programs in C, C++ and Python are in `heap_docs.rs` and `durable_abi.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use spandrel_tests::job::Running;
use spandrel_tests::snippets::{shell_lines, texts};
use spandrel_tests::subject::{release_dir, workspace};
use spandrel_tests::{Job, installed};
use tempfile::TempDir;

/// A compiler takes minutes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1200);

/// A folder of a user, for which the project is installed: commands, compilers and the loader find what it has.
struct Shell {
    folder: TempDir,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let libraries = folder.path().join("lib");
        std::fs::create_dir(&libraries).expect("a folder");
        for name in ["spandrel_durable", "spandrel_heap"] {
            let file = format!("lib{name}.so");
            for link in [file.clone(), format!("{file}.0")] {
                let link = libraries.join(link);
                std::os::unix::fs::symlink(release_dir().join(&file), link).expect("a link");
            }
        }
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("write");
    }

    fn job(&self, line: &str) -> Job {
        let path = std::env::var("PATH").unwrap_or_default();
        let (libraries, include) = (self.path().join("lib"), workspace().join("include"));
        Job::new(installed("sh"))
            .args(["-c", line])
            .dir(self.path())
            .env("PATH", format!("{}:{path}", release_dir().display()))
            .env("CARGO_TARGET_DIR", release_dir().parent().expect("a target folder"))
            .env("LIBRARY_PATH", &libraries)
            .env("LD_LIBRARY_PATH", &libraries)
            .env("CPATH", include)
            .memory_cap(64 << 30)
            .timeout(PATIENCE)
    }

    fn runs(&self, line: &str) -> String {
        self.job(line).run().expect_ok().out()
    }
}

/// Waits until what a started job does is there.
fn await_it(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn terminate(running: Running) {
    // SAFETY: a number of a process that was started here.
    unsafe { libc::kill(running.pid() as i32, libc::SIGTERM) };
    running.wait().expect_ok();
}

/// The next line that begins so.
#[track_caller]
fn next<'l>(lines: &mut impl Iterator<Item = &'l String>, beginning: &str) -> &'l str {
    let line = lines.next().map(String::as_str).unwrap_or_default();
    assert!(
        line.starts_with(beginning),
        "{line:?} is not {beginning:?}: the test knows the document"
    );
    line
}

#[test]
fn of_durable_states() {
    let (document, shell) = ("docs/durable.md", Shell::new());
    let lines = shell_lines(document);
    let mut lines = lines.iter();
    let infos =
        [next(&mut lines, "spandrel durable info"), next(&mut lines, "spandrel durable info")];
    // A backup, its way back, and the way to another layout: of the state of the program in C.
    let [copy, verify] = ["spandrel durable copy", "spandrel durable verify"];
    let starts =
        [copy, verify, "mv ", copy, verify, "spandrel heap dump", "mkdir ", "spandrel heap load"];
    let moves = starts.map(|start| next(&mut lines, start));

    // The program in C, whose stores the compiler names.
    shell.write("visits.c", &texts(document, "c")[0]);
    shell.runs(next(&mut lines, "cc "));
    shell.runs(next(&mut lines, "cc "));
    assert_eq!((&*shell.runs("./visits"), &*shell.runs("./visits")), ("1\n", "2\n"));
    for line in infos {
        let said = shell.runs(&line.replace("DIR", "visits.state"));
        assert!(said.contains("batches"), "{said}");
    }
    for line in moves {
        let line = line.replace("DIR", "visits.state").replace("OTHER", "other");
        let said = shell.runs(&line.replace("BACKUP", "backup"));
        assert!(
            !line.contains("verify") || said.contains("the heap of the state is sound"),
            "{said}"
        );
    }
    assert_eq!(shell.runs("./visits"), "3\n");
    // The one of the dump has its two visits.
    assert_eq!(shell.runs("rm -r visits.state && mv other visits.state && exec ./visits"), "3\n");

    // The same name in C++, whose commands are translated.
    let cpp = Shell::new();
    cpp.write("visits.cc", &texts(document, "cpp")[0]);
    cpp.runs(next(&mut lines, "c++ "));
    assert_eq!((&*cpp.runs("./visits a"), &*cpp.runs("./visits b")), ("1\n", "2\n"));

    // A program whose memory is the state.
    let store = workspace().join("examples/c/kvstore.c");
    std::fs::copy(store, shell.path().join("kvstore.c")).expect("the example");
    shell.runs(next(&mut lines, "cc "));
    shell.runs(next(&mut lines, "cc "));
    let line = next(&mut lines, "SPANDREL_DURABLE_DIR=");
    let asks = |what: &str| shell.job(line).stdin(what).run().expect_ok().out();
    assert_eq!((&*asks("put 7 seven\n"), &*asks("get 7\n")), ("OK\n", "seven\n"));

    // The server: optimised for minutes, and of a checkout.
    let server = shell.path().join("server");
    let made =
        format!("exec cargo run --locked --manifest-path {}/Cargo.toml", workspace().display());
    let [first, second] = [next(&mut lines, "cargo run "), next(&mut lines, "cargo run ")];
    let client = next(&mut lines, "redis-cli ").replace("DIRECTORY", &server.display().to_string());
    for line in [first, second] {
        let line = line.replace("cargo run --release", &made).replace("DIRECTORY", "server");
        let running = shell.job(&line).start();
        let socket = server.join("kvserver.sock");
        await_it("it does not listen", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        assert_eq!(shell.runs(&client), "OK\n");
        terminate(running);
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn of_the_simulator() {
    let shell = Shell::new();
    std::os::unix::fs::symlink(workspace().join("data"), shell.path().join("data"))
        .expect("a link");
    // "A template for one's own."
    std::fs::copy(workspace().join("crates/sim/sizes/default.csv"), shell.path().join("mine.csv"))
        .expect("the built-in distribution");
    for line in shell_lines("docs/sim.md") {
        shell.runs(&line);
    }
    assert!(shell.path().join("plot.svg").is_file() && shell.path().join("out.json").is_file());
}

#[test]
fn of_recordings() {
    let shell = Shell::new();
    let lines = shell_lines("docs/traces.md");
    let mut lines = lines.iter();
    let running = shell.job(&format!("exec {}", next(&mut lines, "spandrel trace record"))).start();
    let ask = |what: &str| {
        let line = format!("redis-cli -p 7000 {what}");
        shell.job(&line).run().ok()
    };
    await_it("it does not answer", || ask("set a b"));
    assert!(ask("debug populate 10000"));
    terminate(running);
    // A terabyte takes minutes, and all sizes are alike.
    lines.for_each(|line| drop(shell.runs(&line.replace("1TiB", "4GiB"))));
    for file in ["redis.csv", "sizes.svg", "plot.svg", "requests.parquet", "spans.parquet"] {
        assert!(shell.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn of_the_recoverable_heap() {
    let [line] = &shell_lines("docs/recoverable-heap-c.md")[..] else { panic!("one line") };
    // `install.rs` has the flags that pkg-config tells.
    let shell = Shell::new();
    shell.write("program.c", &texts("docs/recoverable-heap-c.md", "c")[0]);
    shell.runs(&line.replace("$(pkg-config --cflags --libs spandrel-heap)", "-lspandrel_heap"));
    shell.runs("./a.out");
}
