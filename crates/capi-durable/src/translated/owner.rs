//! To which memory an allocation of translated code belongs: the state of the command, or the process.
//!
//! The C library keeps much of what it allocates: tables of conversions, locales, buffers of files, records of threads. Such an allocation outlives a command that is undone, and the state.
//! So what its code allocates is the process's, but for what its functions allocate for their caller ([`Kind::Callers`]). What other code allocates is the state's, but for what the C++
//! library keeps ([`Kind::Process`]).
//!
//! Which function an allocation is made for is told by the calls that the translator remembers, and by a trace of the stack: a call that has returned is not on it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use spandrel_capture::translate::{self, RememberedCall};
use spandrel_os::modules::{LIBC, Module};

/// What a function allocates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Memory of the C library's own that the function's caller frees: the state's.
    Callers = 1,
    /// What is kept for the whole process, in whichever file the code lies that it runs.
    Process = 2,
    /// Parts of its first argument, and these lie where that does.
    OfFirst = 3,
    /// Parts of what the first word of its first argument leads to.
    OfPointee = 4,
    /// The same as the caller's, and what it gives another size is its caller's from then on.
    Gives = 5,
    /// What it allocates itself, or by one function of its file, is kept for the whole process. What other functions allocate that it calls is not.
    ProcessItself = 6,
}

/// Functions of the C library whose calls are remembered. What is no part of a library's version is left out.
const OF_LIBC: &[(Kind, &[&CStr])] = &[
    (
        Kind::Callers,
        &[
            c"asprintf",
            c"__asprintf_chk",
            c"vasprintf",
            c"__vasprintf_chk",
            c"obstack_printf",
            c"__obstack_printf_chk",
            c"obstack_vprintf",
            c"__obstack_vprintf_chk",
            c"_obstack_begin",
            c"_obstack_begin_1",
            c"_obstack_newchunk",
            c"getline",
            c"getdelim",
            c"realpath",
            c"__realpath_chk",
            c"canonicalize_file_name",
            c"getcwd",
            c"__getcwd_chk",
            c"get_current_dir_name",
            c"scandir",
            c"scandir64",
            c"scandirat",
            c"scandirat64",
            c"tempnam",
            c"regcomp",
            c"re_compile_pattern",
            c"glob",
            c"glob64",
            c"wordexp",
            c"backtrace_symbols",
            c"tsearch",
            c"hcreate_r",
            c"argz_add",
            c"argz_add_sep",
            c"argz_append",
            c"argz_create",
            c"argz_create_sep",
            c"argz_insert",
            c"argz_replace",
            c"envz_add",
            c"envz_merge",
        ],
    ),
    // A table of the process's is made by the function that makes one of the caller's; a library that is loaded runs code of its own.
    (Kind::Process, &[c"hcreate", c"dlopen", c"dlmopen"]),
    // A regular expression has more parts with each text that it is compared with.
    (Kind::OfPointee, &[c"regexec", c"re_search", c"re_search_2", c"re_match", c"re_match_2"]),
    // A file that writes to memory gives it when it is closed or flushed.
    (Kind::Gives, &[c"fclose"]),
];

const LIBSTDCXX: &CStr = c"libstdc++.so.6";

/// The same, of the C++ library.
const OF_LIBSTDCXX: &[(Kind, &[&CStr])] = &[
    (
        Kind::Process,
        &[
            c"_ZNSt6localeC1EPKc",
            c"_ZNSt6localeC2EPKc",
            c"_ZNSt6localeC1ERKS_PKci",
            c"_ZNSt6localeC2ERKS_PKci",
            c"_ZNSt6localeC1ERKS_S1_i",
            c"_ZNSt6localeC2ERKS_S1_i",
        ],
    ),
    (
        Kind::OfFirst,
        &[
            c"_ZNSt13basic_filebufIcSt11char_traitsIcEE27_M_allocate_internal_bufferEv",
            c"_ZNSt13basic_filebufIwSt11char_traitsIwEE27_M_allocate_internal_bufferEv",
            c"_ZNSt8ios_base13_M_grow_wordsEib",
            c"_ZNSt8ios_base17register_callbackEPFvNS_5eventERS_iEi",
        ],
    ),
];

/// Functions of the C++ library that write and read numbers: a locale has tables that they make when it is used first. Calls `see` with their names, of streams of both kinds of
/// characters.
fn each_of_numbers(see: &mut dyn FnMut(Kind, &CStr)) {
    let mut name = |kind, name: String| {
        CString::new(name).iter().for_each(|name| see(kind, name));
    };
    for c in ['c', 'w'] {
        for (stream, parts) in [('i', "7num_get"), ('o', "7num_put")] {
            let class = format!(
                "_ZNKSt{parts}I{c}St19{stream}streambuf_iteratorI{c}St11char_traitsI{c}EEE"
            );
            if stream == 'i' {
                let rest = "S3_S3_RSt8ios_baseRSt12_Ios_IostateR";
                for number in ['j', 'l', 'm', 't', 'x', 'y'] {
                    name(
                        Kind::ProcessItself,
                        format!("{class}14_M_extract_intI{number}EES3_{rest}T_"),
                    );
                }
                name(Kind::ProcessItself, format!("{class}16_M_extract_floatE{rest}Ss"));
                name(Kind::ProcessItself, format!("{class}6do_getE{rest}b"));
                continue;
            }
            for number in ['l', 'm', 'x', 'y'] {
                name(
                    Kind::ProcessItself,
                    format!("{class}13_M_insert_intI{number}EES3_S3_RSt8ios_base{c}T_"),
                );
            }
            for number in ['d', 'e'] {
                let rest = format!("EES3_S3_RSt8ios_base{c}cT_");
                name(Kind::ProcessItself, format!("{class}15_M_insert_floatI{number}{rest}"));
            }
            name(Kind::ProcessItself, format!("{class}6do_putES3_RSt8ios_base{c}b"));
        }
        name(Kind::Process, format!("_ZNSt16__numpunct_cacheI{c}E8_M_cacheERKSt6locale"));
    }
}

/// Files of the C library beside its main one.
const FILES: [&CStr; 6] = [
    LIBC,
    c"ld-linux-x86-64.so.2",
    c"libgcc_s.so.1",
    c"libresolv.so.2",
    c"libpthread.so.0",
    c"libdl.so.2",
];

/// Whether a file is one of the C library: its own ones, and those that it loads for names of hosts and users and for conversions of text.
fn is_librarys(module: &Module) -> bool {
    match module.name() {
        Some(name) => FILES.contains(&name) || name.to_bytes().starts_with(b"libnss_"),
        None => module.function(c"gconv").is_some() && module.function(c"gconv_init").is_some(),
    }
}

/// Whether all that a file keeps is the process's: a file of the C library, or the C++ library.
pub fn is_kept_apart(module: &Module) -> bool {
    module.name() == Some(LIBSTDCXX) || is_librarys(module)
}

/// The files that were there before any command.
#[derive(Default)]
struct Known {
    /// Where the program and the C++ library lie, which allocate most.
    program: Range<usize>,
    cpp: Range<usize>,
    /// All, in order of address, and whether they are the C library's.
    files: Vec<(Range<usize>, bool)>,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

impl Known {
    fn now() -> Self {
        let mut known = Self::default();
        Module::each(&mut |module| {
            known.files.push((module.addresses(), is_librarys(module)));
        });
        known.files.sort_unstable_by_key(|(addresses, _)| addresses.start);
        let library = Module::named(LIBSTDCXX);
        known.cpp = library.map(|library| library.addresses()).unwrap_or_default();
        // Where the loader was run as a command, the first file may be the loader.
        let program = Module::program().filter(|program| !is_librarys(program));
        known.program = program.map(|program| program.addresses()).unwrap_or_default();
        known
    }

    /// Whether an instruction is the C library's.
    fn is_of_library(&self, at: usize) -> bool {
        if self.program.contains(&at) || self.cpp.contains(&at) {
            return false;
        }
        let place = self.files.partition_point(|(addresses, _)| addresses.start <= at);
        match place.checked_sub(1).and_then(|place| self.files.get(place)) {
            Some((addresses, is_librarys)) if addresses.contains(&at) => *is_librarys,
            // A file that was loaded later.
            _ => Module::around(at).is_some_and(|module| is_librarys(&module)),
        }
    }
}

/// Finds the files and the functions whose calls are remembered, before any command.
pub fn prepare() -> Vec<(usize, u32)> {
    KNOWN.get_or_init(Known::now);
    let mut functions = Vec::new();
    for (library, kinds) in [(LIBC, OF_LIBC), (LIBSTDCXX, OF_LIBSTDCXX)] {
        let Some(library) = Module::named(library) else { continue };
        for (kind, names) in kinds {
            let its = names.iter().filter_map(|name| library.function(name));
            functions.extend(its.map(|function| (function.as_ptr() as usize, *kind as u32)));
        }
    }
    if let Some(library) = Module::named(LIBSTDCXX) {
        each_of_numbers(&mut |kind, name| {
            let function = library.function(name);
            functions.extend(function.map(|function| (function.as_ptr() as usize, kind as u32)));
        });
    }
    // Two names may be those of one function.
    functions.sort_unstable();
    functions.dedup_by_key(|(function, _)| *function);
    functions
}

/// Code of the program that allocates for the process.
static CODE: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// What this code allocates itself is the process's.
pub fn add_code(code: Vec<Range<usize>>) {
    if !code.is_empty() {
        CODE.get_or_init(|| code);
    }
}

/// Whether an instruction is the C library's.
fn is_of_library(at: usize) -> bool {
    if CODE.get().is_some_and(|code| code.iter().any(|code| code.contains(&at))) {
        return true;
    }
    KNOWN.get().is_some_and(|known| known.is_of_library(at))
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        trace: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

/// A trace of the stack, from the native function on that translated code has called.
struct Trace<'a> {
    /// Where that function's return address lies.
    slot: usize,
    calls: &'a [RememberedCall],
    /// Functions on the way so far: the first one has called the native function. Other code than the C++ library's ends the count.
    depth: usize,
    /// Code of other files than the C library's was seen.
    has_left: bool,
    found: Option<RememberedCall>,
}

impl Trace<'_> {
    /// Code goes on at `back` when the function returns whose return address lies at `slot`. False: no more is needed.
    fn step(&mut self, slot: usize, back: usize) -> bool {
        if slot < self.slot {
            return true;
        }
        let call = self.calls.iter().find(|call| (call.slot, call.back) == (slot, back));
        if let Some(call) = call {
            match call.kind as u32 {
                kind if kind == Kind::Process as u32 => self.found = Some(*call),
                // It, or what it has called, has called `operator new`, which has called the native function. A stream that has no room calls two functions more.
                kind if kind == Kind::ProcessItself as u32 => {
                    self.found = (self.depth <= 3).then_some(*call).or(self.found);
                }
                // What the C library's code calls, it calls for itself; so does what is called back by it.
                _ if self.found.is_some() || is_of_library(back) => {}
                kind if self.has_left && kind == Kind::Callers as u32 => {}
                _ => self.found = Some(*call),
            }
        }
        self.has_left |= !is_of_library(back);
        let is_cpp = KNOWN.get().is_some_and(|known| known.cpp.contains(&back));
        self.depth = if is_cpp { self.depth + 1 } else { usize::MAX / 2 };
        self.calls.first().is_some_and(|outermost| slot < outermost.slot)
    }
}

unsafe extern "C" fn step(frame: *mut c_void, trace: *mut c_void) -> c_int {
    // SAFETY: called with a frame, and with the trace of `function_of`.
    unsafe {
        let slot = _Unwind_GetCFA(frame).wrapping_sub(size_of::<usize>());
        let goes_on = (*trace.cast::<Trace<'_>>()).step(slot, _Unwind_GetIP(frame));
        c_int::from(!goes_on)
    }
}

/// The remembered function that an allocation is made for: the innermost one, or an outer one that is [`Kind::Process`].
///
/// # Safety
/// Translated code has called a native function, which is at work; `caller` is its caller.
unsafe fn function_of(calls: &[RememberedCall], caller: usize) -> Option<RememberedCall> {
    // SAFETY: promised by the caller.
    let slot = unsafe { translate::native_slot() };
    let mut trace = Trace { slot, calls, depth: 0, has_left: false, found: None };
    // The trace finds the program's own return address there, as everywhere else on the stack; the function needs the translator's when it returns.
    let place = slot as *mut usize;
    // SAFETY: the word is the function's return address, which is at work. Volatile: the trace reads it.
    unsafe {
        let back = place.read_volatile();
        place.write_volatile(caller);
        _Unwind_Backtrace(step, (&raw mut trace).cast());
        place.write_volatile(back);
    }
    trace.found
}

/// What an allocation is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Process,
    State,
    /// The state's, and so is what is given another size.
    Given,
}

/// The owner of what the native function allocates that translated code has called. `may_be_inside`: whether an address is one of the state.
///
/// # Safety
/// Translated code has called a native function, which is at work.
pub unsafe fn of_allocation(may_be_inside: impl Fn(usize) -> bool) -> Owner {
    // SAFETY: promised by the caller.
    let (caller, slot, calls) =
        unsafe { (translate::caller(), translate::native_slot(), translate::remembered()) };
    let is_librarys = is_of_library(caller);
    let usual = if is_librarys { Owner::Process } else { Owner::State };
    // Those that have not returned, and change what is usual.
    let counts = |call: &RememberedCall| {
        let is_callers = call.kind == Kind::Callers as usize || call.kind == Kind::Gives as usize;
        call.slot >= slot && (is_librarys || !is_callers) && call.may_be_under_way()
    };
    if !calls.iter().any(counts) {
        return usual;
    }
    // SAFETY: promised by the caller.
    let Some(call) = (unsafe { function_of(calls, caller) }) else { return usual };
    let where_it_lies = |at| if may_be_inside(at) { Owner::State } else { Owner::Process };
    match call.kind as u32 {
        kind if kind == Kind::Process as u32 || kind == Kind::ProcessItself as u32 => {
            Owner::Process
        }
        kind if kind == Kind::Callers as u32 => Owner::State,
        kind if kind == Kind::Gives as u32 => Owner::Given,
        kind if kind == Kind::OfFirst as u32 => where_it_lies(call.first),
        // SAFETY: the function has it that its first argument leads to what begins with an address.
        _ => where_it_lies(unsafe { (call.first as *const usize).read_unaligned() }),
    }
}
