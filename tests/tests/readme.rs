//! README's snippets run as they stand there, in an empty folder, as a user's first steps do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use spandrel_tests::heap::Program;
use spandrel_tests::job::Running;
use spandrel_tests::snippets::{Snippet, shell_lines, snippets, texts};
use spandrel_tests::subject::{release_dir, workspace};
use spandrel_tests::{Job, installed};
use tempfile::TempDir;

/// A compiler takes minutes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1200);

fn of(language: &str) -> Vec<String> {
    texts("README.md", language)
}

#[test]
fn each_language_has_a_test() {
    for Snippet { language, text, .. } in snippets("README.md") {
        let known = ["rust", "rust,no_run", "c", "sh", "toml"].contains(&language.as_str());
        assert!(known, "no test knows how {language} is run:\n{text}");
    }
}

/// A user's package, of which the text is the program.
struct Package {
    folder: TempDir,
}

impl Package {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("write");
        };
        // The same, without the network: the repository is this one, and the versions are its own.
        let path = format!("path = \"{}\"", workspace().join("crates/spandrel").display());
        let [dependencies] = &of("toml")[..] else { panic!("one block of toml") };
        let git = "git = \"https://github.com/spandrel/spandrel\"";
        assert!(dependencies.contains(git), "{dependencies}");
        let head =
            "[package]\nname = \"first\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
        write("Cargo.toml", &format!("{head}{}", dependencies.replace(git, &path)));
        std::fs::create_dir(folder.path().join("src")).expect("a folder");
        write("src/main.rs", text);
        std::fs::copy(workspace().join("Cargo.lock"), folder.path().join("Cargo.lock"))
            .expect("the lock file");
        Self { folder }
    }

    fn run(&self) -> String {
        let target = release_dir().with_file_name("readme");
        let job = Job::new(cargo()).args(["run", "--quiet", "--offline"]).dir(self.folder.path());
        // The linker of a debug build takes more memory than most programs.
        job.env("CARGO_TARGET_DIR", target)
            .memory_cap(64 << 30)
            .timeout(PATIENCE)
            .run()
            .expect_ok()
            .out()
    }
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| installed("cargo"), PathBuf::from)
}

#[test]
fn rust_programs_run_again_and_again() {
    for text in of("rust") {
        assert!(text.contains("fn main()"), "a program:\n{text}");
        let package = Package::new(&text);
        let (first, second) = (package.run(), package.run());
        // What outlives the process is there in the next one.
        if text.contains("spandrel::heap") {
            assert_eq!((first.as_str(), second.as_str()), ("visit 1\n", "visit 2\n"));
        }
    }
}

#[test]
fn c_programs_run_again_and_again() {
    for text in of("c") {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = folder.path().join("first.c");
        std::fs::write(&source, text).expect("write");
        let program = Program::durable(&source, &["-pedantic"]);
        let run = || Job::new(program.path()).dir(folder.path()).run().expect_ok().out();
        assert_eq!((run().as_str(), run().as_str()), ("visit 1\n", "visit 2\n"));
    }
}

/// A folder with what a user has: a job, texts, and the build folder of the project.
struct Shell {
    folder: TempDir,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path();
        std::fs::write(path.join("job.py"), "print(sum(map(len, map(str, range(100000)))))\n")
            .expect("write");
        for (name, text) in [("a.txt", "one two two\n"), ("b.txt", "three three three\n")] {
            std::fs::write(path.join(name), text.repeat(100)).expect("write");
        }
        let target = release_dir().parent().expect("a target folder").to_path_buf();
        std::os::unix::fs::symlink(target, path.join("target")).expect("a link");
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn job(&self, line: &str) -> Job {
        let path = std::env::var("PATH").unwrap_or_default();
        Job::new(installed("sh"))
            .args(["-c", line])
            .dir(self.path())
            .env("PATH", format!("{}:{path}", release_dir().display()))
            .env("CARGO_TARGET_DIR", release_dir().parent().expect("a target folder"))
            .memory_cap(64 << 30)
            .timeout(PATIENCE)
    }

    fn runs(&self, line: &str) {
        let line = line.replace("/tmp/", &format!("{}/", self.path().display()));
        // Made for a checkout of the project, and optimised for minutes.
        let checkout =
            format!("cargo run --locked --manifest-path {}/Cargo.toml", workspace().display());
        let line = line.replace("cargo run --release", &checkout);
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["make", target, ..] = words[..] {
            let makefile =
                std::fs::read_to_string(workspace().join("Makefile")).expect("a Makefile");
            // The tests are a part of one, and what is measured is the other.
            assert!(makefile.contains(&format!("\n{target}: ")), "no target {target}");
        } else if line.contains("durable run") {
            self.survives(&line);
        } else if line.contains("redis-server") {
            self.serves(&line);
        } else {
            self.job(&line).run().expect_ok();
        }
    }

    /// Starts a server, and waits until it answers: the server, and its socket.
    fn started(&self, line: &str) -> (Running, String) {
        let socket = line.split("--unixsocket ").nth(1).and_then(|rest| rest.split(' ').next());
        let socket = socket.expect("a socket").to_owned();
        let running = self.job(&format!("exec {line}")).start();
        let begun = Instant::now();
        while asked(&socket, &["ping"]) != "PONG" {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        (running, socket)
    }

    /// A server is killed, and started again.
    fn survives(&self, line: &str) {
        for (before, after) in [("", "1"), ("1", "2")] {
            let (running, socket) = self.started(line);
            assert_eq!(asked(&socket, &["get", "key"]), before);
            assert_eq!(asked(&socket, &["incr", "key"]), after);
            // SAFETY: a number of a process that was started here.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            running.wait();
            // What a killed server leaves.
            let _ = std::fs::remove_file(socket);
        }
    }

    /// A server answers, and ends by a signal with its statistics.
    fn serves(&self, line: &str) {
        let (running, _) = self.started(line);
        // SAFETY: a number of a process that was started here.
        unsafe { libc::kill(running.pid() as i32, libc::SIGTERM) };
        let done = running.wait().expect_ok();
        assert!(done.err().contains("requests by size"), "{done}");
    }
}

/// What a server replies.
fn asked(socket: &str, words: &[&str]) -> String {
    let done = Command::new(installed("redis-cli")).args(["-s", socket]).args(words).output();
    done.map_or_else(|_| String::new(), |done| String::from_utf8_lossy(&done.stdout).trim().into())
}

#[test]
fn lines_of_the_shell_do_what_they_say() {
    let shell = Shell::new();
    shell_lines("README.md").iter().for_each(|line| shell.runs(line));
    assert!(shell.path().join("words.heap").is_file());
}
