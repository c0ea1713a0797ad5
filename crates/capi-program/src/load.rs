//! The library is loaded: the adapter is read, and entries of functions lead here from then on.

use std::ffi::{CStr, CString, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use spandrel_adapter::{ANSWER, Adapter, BUILTIN, Count, PROBE, Root};
use spandrel_capture::translate::{Entries, Fixed};

use crate::hooks::{Hook, Rule, enter};
use crate::values::{Found, Test, symbol};
use crate::{hooks, memory, references, refuse};

/// The directory of the state.
pub const DIRECTORY: &CStr = c"SPANDREL_DURABLE_PROGRAM";
/// The path of an adapter, or the name of a builtin one behind [`NAMED`].
pub const ADAPTER: &CStr = c"SPANDREL_DURABLE_ADAPTER";
/// What `LD_PRELOAD` is to be for children of the program.
pub const PRELOAD: &CStr = c"SPANDREL_DURABLE_PRELOAD";
/// Before the name of a builtin adapter.
pub const NAMED: &str = "builtin:";

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// What is known of the program.
pub struct Loaded {
    pub directory: PathBuf,
    pub hooks: Vec<Hook>,
    pub roots: Vec<Array>,
    pub require: Vec<(Test, bool, String)>,
    pub allocator: Option<Allocator>,
    /// Code that allocates for the process within commands.
    pub process_code: Vec<std::ops::Range<usize>>,
    /// Where moved instructions lie.
    pub code: std::ops::Range<usize>,
}

/// A root whose symbols were found.
pub struct Array {
    pub rule: Root,
    pub array: Found,
    pub count: Option<Found>,
}

/// The program's own functions that allocate and free.
pub struct Allocator {
    pub allocate: usize,
    pub free: usize,
    /// What is said of those that lead to no function of the C library.
    pub why: String,
}

static PROGRAM: OnceLock<Loaded> = OnceLock::new();

/// What is known of the program. `None`: the library was not asked for anything.
pub fn program() -> Option<&'static Loaded> {
    PROGRAM.get()
}

fn take(name: &CStr) -> Option<OsString> {
    let key = name.to_str().ok()?;
    let value = std::env::var_os(key)?;
    spandrel_os::env::remove(name);
    Some(value)
}

extern "C" fn loaded() {
    // A program with the rights of another user takes no path from its caller.
    // SAFETY: reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    if std::env::var_os(PROBE).is_some() {
        // By the system: the program has not begun, and never does.
        // SAFETY: a text of that length; nothing of the process is needed any more.
        unsafe {
            libc::write(libc::STDOUT_FILENO, ANSWER.as_ptr().cast(), ANSWER.len());
            libc::_exit(0);
        }
    }
    let Some(directory) = take(DIRECTORY).map(PathBuf::from) else { return };
    // Children are programs of their own.
    match take(PRELOAD).filter(|value| !value.is_empty()) {
        // SAFETY: the process has one thread, as its constructors run.
        Some(before) => unsafe { std::env::set_var("LD_PRELOAD", before) },
        None => spandrel_os::env::remove(c"LD_PRELOAD"),
    }
    memory::find();
    let adapter = take(ADAPTER).unwrap_or_default();
    let loaded = adapter_of(&adapter).and_then(|adapter| prepare(directory, &adapter));
    match loaded {
        Ok(loaded) => drop(PROGRAM.set(loaded)),
        Err(why) => refuse(format_args!("{}: {why}", adapter.to_string_lossy())),
    }
}

fn adapter_of(named: &OsString) -> Result<Adapter, String> {
    let name = named.to_str().and_then(|name| name.strip_prefix(NAMED));
    let text = match name {
        Some(name) => {
            let builtin = BUILTIN.iter().find(|builtin| builtin.name == name);
            builtin.ok_or("there is no builtin adapter of that name")?.text.to_owned()
        }
        None => std::fs::read_to_string(named).map_err(|why| why.to_string())?,
    };
    Adapter::parse(&text).map_err(|why| why.to_string())
}

/// The addresses from a function up to another one.
fn code_of([from, to]: &[String; 2]) -> Result<std::ops::Range<usize>, String> {
    let code = symbol(from)?..symbol(to)?;
    if code.is_empty() {
        return Err(format!(
            "{to} does not lie behind {from} in this build: the adapter is for one whose functions lie in another order"
        ));
    }
    Ok(code)
}

fn prepare(directory: PathBuf, adapter: &Adapter) -> Result<Loaded, String> {
    let mut rules = vec![(adapter.point.function.as_str(), Rule::Point)];
    for input in &adapter.input {
        rules.push((&input.function, Rule::Input { argument: input.argument, bytes: input.bytes }));
    }
    for command in &adapter.command {
        let (tests, is_apart) = (Test::all(&command.when)?, command.apart);
        rules.push((&command.function, Rule::Command { tests, is_apart }));
    }
    for adopt in &adapter.adopt {
        let (copy, release) = (symbol(&adopt.copy)?, symbol(&adopt.release)?);
        rules.push((&adopt.function, Rule::Adopt { argument: adopt.argument, copy, release }));
    }
    for skip in &adapter.skip {
        let (argument, value) = (skip.argument, skip.value as usize);
        rules.push((&skip.function, Rule::Skip { argument, value }));
    }
    for returns in &adapter.returns {
        rules.push((&returns.function, Rule::Returns(returns.value as usize)));
    }
    for at_once in &adapter.at_once {
        rules.push((&at_once.function, Rule::AtOnce(at_once.array)));
    }
    for instead in &adapter.instead {
        let text = CString::new(instead.text.as_str())
            .map_err(|_| format!("{}: its text has a zero", instead.function))?;
        rules.push((&instead.function, Rule::Instead { call: symbol(&instead.call)?, text }));
    }
    for refuse in &adapter.refuse {
        let (value, why) = (refuse.value as usize, refuse.why.clone());
        rules.push((&refuse.function, Rule::Refuse { value, why }));
    }
    for held in &adapter.held {
        rules.push((&held.function, Rule::Held(held.value as usize)));
        rules.push((&held.queues, Rule::Queues));
        rules.push((&held.begins, Rule::Begins));
        rules.push((&held.serves, Rule::Serves));
    }
    rules.extend(adapter.commit.iter().map(|commit| (commit.function.as_str(), Rule::Commit)));
    for counts in &adapter.counts {
        rules.push((&counts.function, Rule::Counts));
    }
    rules.extend(adapter.process.functions.iter().map(|name| (name.as_str(), Rule::Process)));
    let roots = adapter.root.iter().map(|root| {
        let count = match &root.count {
            Count::Value(value) => Some(Found::new(value)?),
            Count::Number(_) => None,
        };
        Ok(Array { array: Found::new(&root.array)?, count, rule: root.clone() })
    });
    let roots = roots.collect::<Result<Vec<_>, String>>()?;
    let require = adapter
        .require
        .iter()
        .map(|require| Ok((Test::new(&require.when)?, require.not, require.why.clone())));
    let require = require.collect::<Result<Vec<_>, String>>()?;
    let allocator = adapter.allocator.as_ref().map(|known| {
        let (allocate, free) = (symbol(&known.allocate)?, symbol(&known.free)?);
        Ok::<_, String>(Allocator { allocate, free, why: known.why.clone() })
    });
    let allocator = allocator.transpose()?;
    let process_code = adapter.process.code.iter().map(code_of);
    let process_code = process_code.collect::<Result<Vec<_>, String>>()?;
    let functions = rules.iter().map(|(name, _)| Ok((symbol(name)?, *name)));
    let functions = functions.collect::<Result<Vec<_>, String>>()?;
    if let Some(name) = references::missing(&functions) {
        return Err(format!(
            "{name}: nothing in the program leads to it: the compiler has made it a part of the functions that call it. Name these in its place"
        ));
    }
    // All that can be wrong was found: from here on the program is changed.
    let mut entries = Entries::default();
    let mut hooks = Vec::new();
    for (number, (name, rule)) in rules.into_iter().enumerate() {
        let function = symbol(name)?;
        // SAFETY: a function of the program; it has one thread, which is not in it. The way in keeps registers.
        let original = unsafe { entries.redirect(function, number as u32, enter()) };
        let original = original.map_err(|why| match why {
            Fixed::Instruction(offset) => format!(
                "{name}: its instruction at offset {offset} cannot be moved; name a function that calls it"
            ),
            Fixed::Refused(_) => format!(
                "{name}: the system refuses to change the program's code; a security policy (SELinux: execmod) or a unit of systemd (MemoryDenyWriteExecute=yes) may forbid it"
            ),
        })?;
        hooks.push(Hook { name: name.to_owned(), rule, entry: function, original });
    }
    let code = entries.addresses();
    Ok(Loaded { directory, hooks, roots, require, allocator, process_code, code })
}

/// A hook by its number.
pub fn hook(number: usize) -> Option<&'static hooks::Hook> {
    program()?.hooks.get(number)
}
