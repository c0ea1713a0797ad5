//! The program that a plain state belongs to: its build, and where it is loaded.
//!
//! Values of the standard library point into the program: an empty `HashMap` to a static, a trait object to its table of functions, a `&'static str` to its
//! text. So a state is opened by the build that made it, at the addresses that it had.

use std::ffi::OsString;
use std::format;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::prelude::v1::*;
use std::process::Command;
use std::{env, fs, vec};

use spandrel_os::modules::Module;
use spandrel_os::personality;

use crate::durable::Error;

/// What a state says of the program that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Program {
    /// Of its build id; where the linker gives none, of its file's contents.
    pub build: u64,
    /// The address of a function; with one of the standard library, where that is another file.
    pub at: u64,
}

/// Its address tells where the program is loaded.
#[inline(never)]
fn probe() -> usize {
    probe as *const () as usize
}

/// Its address tells where the standard library is loaded.
fn library_probe() -> usize {
    std::process::abort as *const () as usize
}

impl Program {
    /// The running one.
    ///
    /// # Errors
    /// [`Error::System`]: its file cannot be read.
    pub fn current() -> Result<Self, Error> {
        let module = Module::around(probe());
        let (mut build, mut at) = (Self::build_of(module.as_ref())?, probe() as u64);
        // Where the standard library is a file of its own (`-C prefer-dynamic`), values point there too.
        let library = library_probe();
        let own = module.map(|module| module.addresses());
        if !own.is_some_and(|own| own.contains(&library)) {
            let mut hasher = DefaultHasher::new();
            (build, Self::build_of(Module::around(library).as_ref())?).hash(&mut hasher);
            build = hasher.finish();
            let mut hasher = DefaultHasher::new();
            (at, library).hash(&mut hasher);
            at = hasher.finish();
        }
        Ok(Self { build, at })
    }

    fn build_of(module: Option<&Module>) -> Result<u64, Error> {
        Ok(match (module.and_then(Module::build_id), module) {
            (Some(id), _) => {
                let mut hasher = DefaultHasher::new();
                id.hash(&mut hasher);
                hasher.finish()
            }
            // The running file is the loader.
            (None, Some(module)) if Module::is_an_argument() => {
                let mut hasher = DefaultHasher::new();
                module.each_constants(&mut |bytes| bytes.hash(&mut hasher));
                hasher.finish()
            }
            (None, _) => number_of_file()
                .map_err(|why| Error::System(why.raw_os_error().unwrap_or_default()))?,
        })
    }
}

/// A number for the contents of the program's file.
fn number_of_file() -> io::Result<u64> {
    let mut file = fs::File::open("/proc/self/exe")?;
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => buffer.get(..read).unwrap_or_default().hash(&mut hasher),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

/// The words of a command line, each with a zero behind it.
fn words(line: &[u8]) -> Vec<OsString> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Whether the program is loaded at the same addresses each time.
pub(super) fn has_fixed_addresses() -> bool {
    // A file that has addresses of its own is loaded there.
    Module::around(probe()).is_some_and(|module| module.base() == 0)
        || personality::has_fixed_addresses()
}

/// Has the program run at the same addresses each time, which a [plain state](super::Plain) needs: where the kernel draws the addresses, the program is started
/// again, with the same arguments and environment. For the first line of `main`: what was done before is done again.
///
/// A program that is linked for fixed addresses (`-C relocation-model=static`) needs no such call, nor does one that is started by `setarch -R`.
///
/// # Errors
/// The kernel refuses fixed addresses (in a container: its seccomp profile forbids `personality(ADDR_NO_RANDOMIZE)`), the program cannot be started
/// again, or it has more rights than its caller.
pub fn fix_addresses() -> io::Result<()> {
    if has_fixed_addresses() {
        return Ok(());
    }
    start_again("link the program with `-C relocation-model=static`")
}

/// Starts the program again, at addresses that are the same each time. It returns if that is refused; `way` is another way that the reason names.
#[doc(hidden)]
pub fn start_again(way: &str) -> io::Result<()> {
    let refused = |why: &str| {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}, or {way}")))
    };
    // Without this check the program would start itself again and again.
    if personality::is_privileged() {
        return refused(
            "a program with more rights than its caller gets no fixed addresses: start it without them",
        );
    }
    if personality::fix_addresses().is_err() {
        return refused(
            "the kernel refuses fixed addresses: allow personality(ADDR_NO_RANDOMIZE) in the container's seccomp profile",
        );
    }
    // The loader has taken itself out of the arguments that the program sees, with its options.
    let all = if Module::is_an_argument() {
        match fs::read("/proc/self/cmdline") {
            Ok(line) => words(&line),
            Err(why) => {
                personality::draw_addresses();
                return refused(&format!(
                    "the program was started as an argument of its loader, whose own arguments cannot be read (/proc/self/cmdline: {why}): start the program itself"
                ));
            }
        }
    } else {
        env::args_os().collect()
    };
    let mut arguments = all.into_iter();
    let name = arguments.next().unwrap_or_default();
    // The file itself gives the process its usual name. The link works also when the file was replaced.
    let file = env::current_exe().ok().filter(|file| file.exists());
    let file = file.unwrap_or_else(|| "/proc/self/exe".into());
    let why = Command::new(&file).arg0(name).args(arguments).exec();
    // This process's addresses are not fixed.
    personality::draw_addresses();
    Err(io::Error::new(
        why.kind(),
        format!(
            "{}: starting it again at fixed addresses: {why}; allow execve, or {way}",
            file.display()
        ),
    ))
}
