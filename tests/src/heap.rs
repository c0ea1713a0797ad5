//! C and C++ programs that are linked with `libspandrel_heap` or `libspandrel_durable`, and folders for their heaps and states.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::abi::abi_dir;
use crate::subject::{release_dir, workspace};
use crate::{Finished, Job};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"];

/// A file that `make build` makes.
#[track_caller]
pub fn built(name: &str) -> PathBuf {
    let path = release_dir().join(name);
    assert!(path.is_file(), "{} is missing: make build", path.display());
    path
}

/// Compiles with our headers; warnings are errors.
#[track_caller]
pub fn compile(compiler: &str, arguments: &[&str]) {
    let include = format!("-I{}", workspace().join("include").display());
    let output = Command::new(compiler).args(STRICT).arg(include).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("install {compiler}: make setup ({e})"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}:\n{words}");
}

/// A program, the library beside it under the names that the linker and the loader look for, and a folder for heaps.
pub struct Program {
    path: PathBuf,
    heaps: TempDir,
    _folder: TempDir,
}

impl Program {
    /// A source of `tests/abi`, with the shared library.
    #[track_caller]
    pub fn new(file: &str) -> Self {
        Self::with(&abi_dir().join(file), &[])
    }

    /// A source with further flags, with the shared library.
    #[track_caller]
    pub fn with(source: &Path, flags: &[&str]) -> Self {
        Self::beside("spandrel_heap", source, flags)
    }

    /// A source with further flags, with the shared library of durable states.
    #[track_caller]
    pub fn durable(source: &Path, flags: &[&str]) -> Self {
        Self::beside("spandrel_durable", source, flags)
    }

    /// The same, by another compiler of C++.
    #[track_caller]
    pub fn durable_by(compiler: &str, source: &Path, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = Self::link(&folder, "spandrel_durable", flags);
        let link: Vec<_> = link.iter().map(String::as_str).collect();
        Self::compiled_by((compiler, "-std=c++17"), source, folder, &link)
    }

    /// The same, whose stores the compiler names: flags of the compilation alone.
    #[track_caller]
    pub fn hooked(compiler: &str, source: &Path, flags: &[&str]) -> Self {
        Self::hooked_and_linked(compiler, source, flags, &[])
    }

    /// The same, whose allocations are the library's as well: a program whose memory is the state.
    #[track_caller]
    pub fn transparent(source: &Path) -> Self {
        let names = "malloc calloc realloc free aligned_alloc posix_memalign strdup strndup";
        let wrapped: Vec<_> = names.split(' ').map(|name| format!("-Wl,--wrap={name}")).collect();
        let wrapped: Vec<_> = wrapped.iter().map(String::as_str).collect();
        Self::hooked_and_linked("cc", source, &["-std=c11"], &wrapped)
    }

    #[track_caller]
    fn hooked_and_linked(compiler: &str, source: &Path, flags: &[&str], link: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let object = folder.path().join("hooked.o");
        let (from, to) = (source.display().to_string(), object.display().to_string());
        // Anywhere in the address space: the shadow of the sanitizer's own runtime is not there.
        let hooks = ["-fsanitize=thread", "-fno-builtin", "-DHOOKED", "-c", "-o", &to, &from];
        compile(compiler, &[&hooks[..], flags].concat());
        let is_cpp = source.extension().is_some_and(|ending| ending == "cc");
        let libraries: &[&str] = if is_cpp { &["-lstdc++", "-lm"] } else { &[] };
        Self::beside("spandrel_durable", &object, &[libraries, link].concat())
    }

    #[track_caller]
    fn beside(library: &str, source: &Path, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = Self::link(&folder, library, flags);
        let link: Vec<_> = link.iter().map(String::as_str).collect();
        Self::compiled(source, folder, &link)
    }

    /// Places a library beside a program: the arguments of the linker, with further flags.
    fn link(folder: &TempDir, library: &str, flags: &[&str]) -> Vec<String> {
        let file = format!("lib{library}.so");
        for name in [&file, &format!("{file}.0")] {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(built(&file), link).expect("a link");
        }
        let folder = folder.path().display();
        let own = [format!("-L{folder}"), format!("-Wl,-rpath,{folder}"), format!("-l{library}")];
        own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
    }

    /// A source of `tests/abi` that is linked with what the arguments say.
    #[track_caller]
    pub fn linked(file: &str, folder: TempDir, link: &[&str]) -> Self {
        Self::compiled(&abi_dir().join(file), folder, link)
    }

    #[track_caller]
    fn compiled(source: &Path, folder: TempDir, link: &[&str]) -> Self {
        let is_cpp = source.extension().is_some_and(|ending| ending == "cc");
        let by = if is_cpp { ("g++", "-std=c++17") } else { ("cc", "-std=c11") };
        Self::compiled_by(by, source, folder, link)
    }

    #[track_caller]
    fn compiled_by(
        (compiler, standard): (&str, &str),
        source: &Path,
        folder: TempDir,
        link: &[&str],
    ) -> Self {
        let path = folder.path().join("program");
        let (source, output) = (source.display().to_string(), path.display().to_string());
        let mut arguments = vec![standard, "-o", &output, &source];
        arguments.extend(link);
        compile(compiler, &arguments);
        let heaps = tempfile::tempdir().expect("a temporary folder");
        Self { path, heaps, _folder: folder }
    }

    /// Heaps lie in this folder instead.
    #[must_use]
    pub fn with_heaps_in(mut self, folder: &Path) -> Self {
        self.heaps = tempfile::tempdir_in(folder).expect("a temporary folder");
        self
    }

    /// The compiled program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the heaps.
    pub fn heaps(&self) -> &Path {
        self.heaps.path()
    }

    /// One run. The first argument is the path of a heap.
    pub fn job(&self, arguments: &[&str]) -> Job {
        Job::new(&self.path).arg(self.heaps.path().join("heap")).args(arguments)
    }

    /// One run to its end. The first argument is the path of a heap.
    #[track_caller]
    pub fn ends_well(&self, arguments: &[&str]) {
        self.job(arguments).run().expect_ok();
    }

    /// Kills runs of the program again and again while they change what they have, each time some milliseconds after they have said that they have begun.
    #[track_caller]
    pub fn is_killed_in_the_middle(&self, arguments: &[&str], rounds: u64) {
        for round in 0..rounds {
            let running = self.job(arguments).start();
            let begun = Instant::now();
            while !running.stdout_so_far().contains("begun") {
                assert!(
                    !running.has_ended() && begun.elapsed() < Duration::from_secs(60),
                    "it does not begin: {}",
                    running.stderr_so_far()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            // Not in step with anything: the numbers are all different, and the machine is what it is.
            std::thread::sleep(Duration::from_micros(500 + round * round * 7919 % 60_000));
            // SAFETY: the number of a process that was started here.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            let done = running.wait();
            assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
        }
    }

    /// One run, which kills itself.
    #[track_caller]
    pub fn is_killed(&self, arguments: &[&str]) -> Finished {
        let done = self.job(arguments).run();
        assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
        done
    }
}
