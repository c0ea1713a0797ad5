//! `spandrel durable run`: an unmodified program whose state survives crashes, and `spandrel durable adapters`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use spandrel_adapter::{ANSWER, Adapter, BUILTIN, PROBE, for_program};
use spandrel_console::{Failure, say};
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::store::{self, Settings};
use spandrel_measure::places;
use spandrel_os::personality;

use crate::run::{loadable, symbols, with_preloaded};

/// The library that is loaded into the program.
const LIBRARY: &str = "libspandrel_program.so";
/// How much of the program's answer is shown.
const SHOWN: usize = 200;

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The directory of the state, which is made if it is missing.
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// The adapter: a file, or the name of one of `spandrel durable adapters`. Without it the one that is for a program of that name.
    #[arg(long, value_name = "ADAPTER")]
    adapter: Option<OsString>,
    /// The program, and what it is called with.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A program that is to run with a durable state.
pub struct Durable {
    path: PathBuf,
    words: Vec<OsString>,
    pub adapter: Adapter,
    /// What the library finds the adapter by.
    named: OsString,
    library: PathBuf,
}

/// The adapter for a program, and what the library finds it by.
fn adapter_for(asked: Option<&OsStr>, program: &Path) -> Result<(Adapter, OsString), Failure> {
    let wrong = |name: &OsStr, why: &dyn std::fmt::Display| {
        Failure::refused(format!("adapter '{}': {why}", name.to_string_lossy()))
    };
    let builtin = |name: &str| OsString::from(format!("builtin:{name}"));
    let Some(asked) = asked else {
        let found = for_program(program).map_err(|why| wrong("builtin".as_ref(), &why))?;
        let name = program.display();
        return found.map(|(known, adapter)| (adapter, builtin(known.name))).ok_or_else(|| {
            Failure::refused(format!(
                "'{name}': there is no adapter for a program of that name; `spandrel durable adapters` lists them, and --adapter names one (docs/adapters.md shows how one is written)"
            ))
        });
    };
    if let Some(known) = BUILTIN.iter().find(|known| asked == known.name) {
        let adapter = Adapter::parse(known.text).map_err(|why| wrong(asked, &why))?;
        return Ok((adapter, builtin(known.name)));
    }
    let text = std::fs::read_to_string(asked).map_err(|why| wrong(asked, &why))?;
    let adapter = Adapter::parse(&text).map_err(|why| wrong(asked, &why))?;
    let path = std::fs::canonicalize(asked).map_err(|why| wrong(asked, &why))?;
    Ok((adapter, path.into_os_string()))
}

/// Refuses a program of another version than the adapter is for.
fn check_version(program: &Path, adapter: &Adapter) -> Result<(), Failure> {
    let (name, asked) = (program.display(), &adapter.program.version);
    if adapter.program.versions.is_empty() {
        return Ok(());
    }
    let ran = Command::new(program).args(asked).stdin(Stdio::null()).output();
    let ran =
        ran.map_err(|why| Failure::refused(format!("'{name}' {}: {why}", asked.join(" "))))?;
    let says = [ran.stdout, ran.stderr].concat();
    let says = String::from_utf8_lossy(&says);
    if adapter.program.versions.iter().any(|version| says.contains(version.as_str())) {
        return Ok(());
    }
    let versions = adapter.program.versions.iter().map(|version| version.trim());
    let says: String = says.trim().chars().take(SHOWN).collect();
    Err(Failure::refused(format!(
        "'{name}': the adapter '{}' is for versions that say {:?}; this one says {says:?}. Use such a version, or write an adapter for this one (docs/adapters.md)",
        adapter.program.name,
        versions.collect::<Vec<_>>()
    )))
}

/// Refuses a program into which the library is not loaded: it would run as if nothing were wrong, and nothing would be durable.
fn check_loads(program: &Path, adapter: &Adapter, library: &Path) -> Result<(), Failure> {
    // Without the library the program says its version.
    let version = match adapter.program.version.as_slice() {
        [] => &["--version".to_owned()],
        words => words,
    };
    let mut command = Command::new(program);
    command.args(version).stdin(Stdio::null()).env(PROBE, "1");
    let ran = command.env("LD_PRELOAD", with_preloaded(library, std::env::var_os("LD_PRELOAD")));
    let name = program.display();
    let ran = ran.output().map_err(|why| Failure::refused(format!("'{name}': {why}")))?;
    // Other libraries may say something before.
    if ran.stdout.ends_with(ANSWER.as_bytes()) {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&ran.stderr);
    let says: String = says.lines().next().unwrap_or_default().chars().take(2 * SHOWN).collect();
    Err(Failure::refused(format!(
        "'{name}': {} is not loaded into it, and nothing would be durable: the system's loader says {says:?}. The library needs a C library that is not older than that of the system it was built on, and a directory that allows code",
        library.display()
    )))
}

/// Makes the state if there is none: what the program draws at random depends on its number.
fn make_state(directory: &Path) -> Result<(), Failure> {
    let make = || {
        let paths = Paths::new(directory.as_os_str().as_bytes())?;
        let opened = Directory::open(paths.directory.as_c(), true)?;
        let paths = opened.paths(paths)?;
        if !store::has_state(&paths)? {
            let settings = Settings::default();
            let heap = store::make_heap(&settings)?;
            heap.seal()?;
            store::publish(&paths, &heap, &settings)?;
            heap.abandon();
        }
        Ok(())
    };
    make().map_err(|why| super::refused(directory, why))
}

impl Durable {
    /// The program that these words call, with the adapter that is asked for or its own.
    pub fn find(words: &[OsString], adapter: Option<&OsStr>) -> Result<Self, Failure> {
        let path = loadable(words)?;
        refuse_script(&path)?;
        let (adapter, named) = adapter_for(adapter, &path)?;
        check_version(&path, &adapter)?;
        let library = places::beside(LIBRARY).ok_or_else(|| {
            Failure::refused(format!(
                "{LIBRARY} was not found beside this command or in ../lib: build it with 'cargo build --release -p spandrel-capi-program'"
            ))
        })?;
        places::check_preloadable(&library)?;
        check_loads(&path, &adapter, &library)?;
        Ok(Self { path, words: words.to_vec(), adapter, named, library })
    }

    /// Whether the program asks the loader for a function of a library.
    pub fn imports(&self, function: &str) -> bool {
        symbols::imports(&self.path, function)
    }

    /// What it is called.
    pub fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// The command that runs it with the state of a directory, which is made if it is missing, and with more arguments. From now on this process and its children have the same addresses each time.
    pub fn command(&self, directory: &Path, more: &[OsString]) -> Result<Command, Failure> {
        make_state(directory)?;
        let directory = std::fs::canonicalize(directory)
            .map_err(|why| Failure::refused(format!("{}: {why}", directory.display())))?;
        fix_addresses()?;
        let mut command = Command::new(&self.path);
        if let Some((name, words)) = self.words.split_first() {
            command.arg0(name).args(words).args(more);
        }
        let before = std::env::var_os("LD_PRELOAD");
        command.env("SPANDREL_DURABLE_PROGRAM", directory);
        command.env("SPANDREL_DURABLE_ADAPTER", &self.named);
        command.env("SPANDREL_DURABLE_PRELOAD", before.clone().unwrap_or_default());
        command.env("LD_PRELOAD", with_preloaded(&self.library, before));
        Ok(command)
    }
}

/// A script runs other programs: which of them has the state?
fn refuse_script(path: &Path) -> Result<(), Failure> {
    let mut first = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    if read.is_ok() && first == *b"#!" {
        return Err(Failure::refused(format!(
            "'{}': a script; name the program that it runs, with the words that it has",
            path.display()
        )));
    }
    Ok(())
}

fn fix_addresses() -> Result<(), Failure> {
    personality::fix_addresses().map_err(|why| {
        Failure::refused(format!(
            "the system does not let a program have the same addresses each time ({}): the state leads into it. A unit of systemd must not have LockPersonality=yes. In a container the seccomp profile must allow personality(ADDR_NO_RANDOMIZE): add {{\"names\": [\"personality\"], \"action\": \"SCMP_ACT_ALLOW\", \"args\": [{{\"index\": 0, \"value\": 262144, \"op\": \"SCMP_CMP_EQ\"}}]}} to \"syscalls\"",
            std::io::Error::from_raw_os_error(why)
        ))
    })
}

/// Becomes the program.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let program = Durable::find(&args.program, args.adapter.as_deref())?;
    let why = program.command(&args.dir, &[])?.exec();
    Err(Failure::not_executable(format!("'{}': {why}", program.name())))
}

/// Lists the adapters that there are.
pub fn adapters() -> Result<u8, Failure> {
    for known in BUILTIN {
        let adapter = Adapter::parse(known.text).map_err(Failure::new)?;
        let programs = adapter.program.executables.join(", ");
        say::out(format!("{}: {} ({programs})", known.name, adapter.program.about))?;
    }
    Ok(0)
}
