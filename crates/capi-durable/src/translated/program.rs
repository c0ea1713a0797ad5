//! The files that a state may lead into: the program and its libraries, by their builds and addresses.
//!
//! An object of C++ leads to a table of functions, a stream of zlib into zlib. So a state remembers all files that a process had loaded when it opened the state, and the next process has
//! the same ones at the same addresses. It may have more: they are remembered from then on.

use std::ffi::c_int;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ptr::NonNull;

use spandrel::durable::{Arena, start_again};
use spandrel_os::modules::Module;
use spandrel_os::personality;
use spandrel_pmem::Notes as _;

use crate::failure::{self, Failure};

/// The root of what is remembered.
const ROOT: &str = "spandrel.program";

/// Bytes of a name that are kept.
const NAME_BYTES: usize = 48;

/// A file's name, for messages: that of its linker, or its first bytes. Empty: the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    fn of(module: &Module) -> Self {
        let mut name = [0; NAME_BYTES];
        let known = module.name().map_or(&b""[..], |name| name.to_bytes());
        name.iter_mut().zip(known).for_each(|(place, byte)| *place = *byte);
        Self(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        match bytes {
            [] => f.write_str("the program"),
            name => String::from_utf8_lossy(name).fmt(f),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A loaded file, as the state remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct File {
    at: u64,
    build: u64,
    name: Name,
}

/// A number for what a file is: of its build id; where the linker gives none, of its code and constants.
fn build_of(module: &Module) -> u64 {
    let mut hasher = DefaultHasher::new();
    match module.build_id() {
        Some(id) => id.hash(&mut hasher),
        None => module.each_constants(&mut |bytes| bytes.hash(&mut hasher)),
    }
    hasher.finish()
}

/// Whether the program is loaded at the same addresses each time, and whether its libraries are.
fn fixed_addresses() -> (bool, bool) {
    let is_fixed = personality::has_fixed_addresses();
    // A file that has addresses of its own is loaded there.
    (is_fixed || Module::program().is_some_and(|program| program.base() == 0), is_fixed)
}

/// The files of this process that are at the same addresses each time.
fn files() -> Vec<File> {
    let (is_program_fixed, are_libraries) = fixed_addresses();
    let mut all = Vec::new();
    let mut is_fixed = is_program_fixed;
    Module::each(&mut |module| {
        // The kernel's own file is another one on another kernel, and nothing leads there.
        let is_kernels = module.name() == Some(c"linux-vdso.so.1");
        if is_fixed && !is_kernels {
            let (at, build) = (module.addresses().start as u64, build_of(module));
            all.push(File { at, build, name: Name::of(module) });
        }
        is_fixed = are_libraries;
    });
    all
}

/// The object that remembers: the number of files, and the files.
///
/// # Errors
/// Those of the heap.
fn memory(arena: &Arena) -> Result<Option<NonNull<u64>>, Failure> {
    let Some(index) = arena.find_root(ROOT)? else { return Ok(None) };
    Ok(arena.get_root(index)?.map(NonNull::cast))
}

/// What it remembers.
///
/// # Safety
/// The object is that of [`memory`].
unsafe fn remembered(object: NonNull<u64>) -> Vec<File> {
    // SAFETY: the root leads to a number and that number of files, which were stored whole.
    unsafe {
        let count = object.read() as usize;
        core::slice::from_raw_parts(object.add(1).cast::<File>().as_ptr(), count).to_vec()
    }
}

/// Has a state remember files.
///
/// # Safety
/// The calling thread runs a batch of the state.
unsafe fn remember(arena: &Arena, files: &[File]) -> Result<(), Failure> {
    let bytes = size_of::<u64>() + size_of_val(files);
    let object = arena.alloc(bytes)?;
    arena.medium().notes().note(object.as_ptr(), bytes);
    // SAFETY: a new object of that size, whose alignment is 16.
    unsafe {
        let count = object.cast::<u64>();
        count.write(files.len() as u64);
        count
            .add(1)
            .cast::<File>()
            .copy_from_nonoverlapping(NonNull::from(files).cast(), files.len());
    }
    let index = arena.named_root_of(ROOT, 0)?;
    Ok(arena.set_root(index, Some(object))?)
}

/// Which files a state may lead into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeadsTo {
    /// Those that are known, and no others.
    Known,
    /// All that are loaded.
    All,
    /// The program's own: it may have other libraries each time.
    Program,
}

/// Checks that the process has what the state may lead into.
///
/// # Errors
/// [`Failure::Addresses`], [`Failure::OtherBuild`], [`Failure::Moved`]; those of the heap.
///
/// # Safety
/// The calling thread runs a batch of the state.
pub unsafe fn check(arena: &Arena, leads: LeadsTo) -> Result<(), Failure> {
    let object = memory(arena)?;
    if object.is_none() && leads == LeadsTo::Known {
        return Ok(());
    }
    if !fixed_addresses().0 {
        return Err(Failure::Addresses);
    }
    let mut present = files();
    if leads == LeadsTo::Program {
        present.truncate(1);
    }
    // SAFETY: the object is the state's.
    let mut known = object.map_or(Vec::new(), |object| unsafe { remembered(object) });
    for file in &known {
        let is_it = |other: &&File| other.build == file.build;
        match present.iter().filter(is_it).any(|other| other.at == file.at) {
            true => {}
            false if present.iter().any(|other| is_it(&other)) => {
                return Err(Failure::Moved(file.name));
            }
            false => return Err(Failure::OtherBuild(file.name)),
        }
    }
    let before = known.len();
    let more: Vec<_> = present.iter().filter(|file| !known.contains(file)).collect();
    known.extend(more);
    if leads != LeadsTo::Known && known.len() > before {
        // SAFETY: promised by the caller; nothing leads to the old object any more.
        unsafe {
            remember(arena, &known)?;
            if let Some(object) = object {
                arena.free(object.cast())?;
            }
        }
    }
    Ok(())
}

/// Has the program run at the same addresses each time: 0, or -1; where the kernel draws them, the program is started again. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_fix_addresses() -> c_int {
    if personality::has_fixed_addresses() {
        return 0;
    }
    failure::system(start_again("link the program with -no-pie"))
}
