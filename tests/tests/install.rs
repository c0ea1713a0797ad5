//! What `make install` leaves is whole: the command with all that it calls, and what compilers and build systems ask.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use spandrel_tests::subject::{release_dir, workspace};
use spandrel_tests::{Finished, Job, Program, Source, installed};
use tempfile::TempDir;

/// A prefix with an installation.
struct Prefix {
    folder: TempDir,
}

impl Prefix {
    /// Installs what is built.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = release_dir().parent().expect("a target folder").to_path_buf();
        // `build` is up to date: a test that compiles would take minutes.
        let done = Command::new("make")
            .args(["-s", "-o", "build", "install"])
            .arg(format!("PREFIX={}", folder.path().display()))
            .env("CARGO_TARGET_DIR", target)
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env_remove("DESTDIR")
            .current_dir(workspace())
            .output()
            .expect("make");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "make build comes first: {said}");
        Self { folder }
    }

    /// One for all tests.
    fn shared() -> &'static Self {
        static PREFIX: OnceLock<Prefix> = OnceLock::new();
        PREFIX.get_or_init(Self::new)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The installed command, which finds nothing but what lies in the prefix.
    fn spandrel(&self, words: &[&str]) -> Finished {
        Job::new(self.path("bin/spandrel")).args(words).run()
    }
}

#[test]
fn an_installed_command_measures_and_replays() {
    let prefix = Prefix::shared();
    let bench = ["bench", "startup", "--quick", "--runs", "1", "--peers", "sys"];
    let done = prefix.spandrel(&bench).expect_ok();
    assert!(done.out().contains("spandrel") && done.out().contains("sys"), "{done}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("x.trace");
    let trace = trace.to_str().expect("UTF-8");
    prefix.spandrel(&["trace", "record", "-o", trace, "--", "ls", "/"]).expect_ok();
    let replay = ["trace", "replay", trace, "--runs", "1", "--peers", "sys"];
    let done = prefix.spandrel(&replay).expect_ok();
    assert!(done.out().contains("the requests of ls"), "{done}");

    let sim = ["sim", "--on-allocators", "--heap", "64MiB", "--runs", "1", "--peers", "sys"];
    prefix.spandrel(&sim).expect_ok();
}

/// Compiles a C program with flags, which says the version of a library, and runs it.
fn compiled(library: &str, folder: &Path, flags: &[&str], environment: &[(&str, &Path)]) -> String {
    let source = folder.join("main.c");
    let text = format!(
        "#include <{library}.h>\n#include <stdio.h>\n\
         int main(void) {{ puts({library}_version()); return 0; }}\n"
    );
    std::fs::write(&source, text).expect("write");
    let program = folder.join("main");
    let done = Command::new("cc").arg("-o").arg(&program).arg(&source).args(flags).output();
    let done = done.expect("cc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut job = Job::new(&program);
    for (name, value) in environment {
        job = job.env(name, value);
    }
    job.run().expect_ok().out().trim().to_owned()
}

/// libc's allocator is left out by the linker, and ours is there once.
#[test]
fn programs_that_libc_is_linked_into_take_the_archive_as_it_is() {
    let archive = Prefix::shared().path("lib/libspandrel.a");
    let flags = ["-static", archive.to_str().expect("UTF-8")];
    for file in
        ["realloc_walk.c", "aligned.c", "producer_consumer.c", "fork_threads.c", "threaded.cc"]
    {
        let program = Program::with(&Source { file, flags: &flags });
        program.run_each(&["auto", "native", "sys", "mimalloc"], |job| job);
    }
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

#[test]
fn pkg_config_says_what_compilers_need() {
    let prefix = Prefix::shared();
    let ask = |package: &str, words: &[&str]| -> Vec<String> {
        let done = Command::new(installed("pkg-config"))
            .args(words)
            .arg(package)
            .env("PKG_CONFIG_PATH", prefix.path("lib/pkgconfig"))
            .output()
            .expect("pkg-config");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).split_whitespace().map(str::to_owned).collect()
    };
    for (package, library) in [("spandrel", "spandrel"), ("spandrel-durable", "spandrel_durable")] {
        assert_eq!(ask(package, &["--modversion"]), [version()]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = ask(package, &["--cflags", "--libs"]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let lib = prefix.path("lib");
        let said = compiled(library, folder.path(), &flags, &[("LD_LIBRARY_PATH", &lib)]);
        assert_eq!(said, version());
    }
}

#[test]
fn cmake_finds_the_version_and_refuses_another() {
    let prefix = Prefix::shared();
    let find = |wanted: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = format!(
            "cmake_minimum_required(VERSION 3.10)\nproject(p C)\n\
             find_package(Spandrel {wanted} REQUIRED)\n\
             message(STATUS \"found=${{Spandrel_VERSION}}\")\n\
             add_executable(p main.c)\ntarget_link_libraries(p Spandrel::spandrel)\n\
             add_executable(d main.c)\ntarget_link_libraries(d Spandrel::durable)\n"
        );
        std::fs::write(folder.path().join("CMakeLists.txt"), text).expect("write");
        std::fs::write(folder.path().join("main.c"), "int main(void) { return 0; }\n")
            .expect("write");
        let done = Command::new(installed("cmake"))
            .args(["-S", ".", "-B", "build"])
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.folder.path().display()))
            .current_dir(folder.path())
            .output()
            .expect("cmake");
        let said =
            [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (done.status.success(), said.concat())
    };
    let found = format!("found={}", version());
    for wanted in ["", "0", "0.1", "0.1.0"] {
        let (is_found, said) = find(wanted);
        assert!(is_found && said.contains(&found), "{wanted}: {said}");
    }
    for wanted in ["0.0.9", "0.1.1", "0.2", "1.0"] {
        let (is_found, said) = find(wanted);
        let version = format!("version: {}", version());
        assert!(!is_found && said.contains(&version), "{wanted}: {said}");
    }
}

#[test]
fn versions_of_the_packages_are_the_projects() {
    let makefile = std::fs::read_to_string(workspace().join("Makefile")).expect("the Makefile");
    assert!(makefile.contains(&format!("VERSION := {}\n", version())));
}
