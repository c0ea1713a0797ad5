//! The files that a process has loaded: their addresses, and the symbols that each defines.
//!
//! A symbol is looked up in one file alone, whatever other files define under the same name. Nothing
//! here allocates: `dlsym` and `dlopen` do, through the program's `malloc`.
//!
//! A file's table of symbols can be made to name other functions, for all that is bound or looked up from then
//! on. This module keeps what the table named first, and goes on finding that.

mod kernel;
mod names;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use rustix::mm::{self, MprotectFlags};
use spandrel_pages::{PAGE_BYTES, align_down, align_up};

/// The name that glibc itself goes by.
pub const LIBC: &CStr = c"libc.so.6";

/// A file that the loader knows.
#[derive(Clone, Debug)]
pub struct Module {
    addresses: Range<usize>,
    /// What is added to the addresses that the file states.
    base: usize,
    /// Its dynamic section; null where it has none.
    dynamic: *const Dynamic,
    headers: *const [libc::Elf64_Phdr],
    /// The calling thread's variables of the file; null where it has none.
    of_thread: *const c_void,
}

/// An entry of a dynamic section (`Elf64_Dyn`).
#[repr(C)]
struct Dynamic {
    tag: u64,
    value: usize,
}

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// In a symbol's version: only programs that name the version mean the symbol.
const VERSION_HIDDEN: u16 = 0x8000;
/// The type of a symbol, in the low bits of its information: a function.
const STT_FUNC: u8 = 2;
/// The same, of one that the loader calls for the function's address.
const STT_GNU_IFUNC: u8 = 10;

impl Module {
    /// The file that an address of code or data lies in; `None`: it is no file's that the loader knows.
    /// Some hundred nanoseconds; `dladdr` looks at every symbol of the file.
    pub fn around(address: usize) -> Option<Self> {
        find(|module| module.addresses.contains(&address))
    }

    /// The program itself.
    pub fn program() -> Option<Self> {
        find(|_| true)
    }

    /// Whether the program was started as an argument of its loader (`/lib64/ld-linux-x86-64.so.2 ./program`): what the kernel calls the running file is the loader then.
    pub fn is_an_argument() -> bool {
        // The kernel has loaded no loader for the file that it has started, and the program needs one.
        // SAFETY: reads a value of the process; the headers of a loaded file are mapped as long as it is.
        let (loader, headers) = unsafe {
            (libc::getauxval(libc::AT_BASE), Self::program().map(|program| &*program.headers))
        };
        let has_loader = |header: &libc::Elf64_Phdr| header.p_type == libc::PT_INTERP;
        loader == 0 && headers.is_some_and(|headers| headers.iter().any(has_loader))
    }

    /// Calls `see` with each file, the program first. `see` must not load or unload one.
    pub fn each(see: &mut dyn FnMut(&Self)) {
        find(|module| {
            see(module);
            false
        });
    }

    /// The file of that `DT_SONAME`, the first one of them.
    pub fn named(name: &CStr) -> Option<Self> {
        find(|module| module.name() == Some(name))
    }

    /// The first file, in the order in which the loader looks names up for a program, that defines a function of that name for other
    /// files.
    pub fn defining(name: &CStr) -> Option<Self> {
        find(|module| module.symbol(name).is_some())
    }

    /// The first one behind the file that an address lies in, in the same order.
    pub fn defining_after(address: usize, name: &CStr) -> Option<Self> {
        let mut is_behind = false;
        find(|module| {
            if module.addresses.contains(&address) {
                is_behind = true;
                return false;
            }
            is_behind && module.symbol(name).is_some()
        })
    }

    /// The addresses from its first to its last segment.
    pub fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// What the loader has added to the addresses that the file states: 0 for a file that has addresses of its own.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The number that the linker has given the file for its contents (`NT_GNU_BUILD_ID`); `None`: it has none.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        // SAFETY: the headers of a loaded file are mapped as long as it is.
        let headers = unsafe { &*self.headers };
        let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        notes.into_iter().find_map(|header| {
            let at = self.base.wrapping_add(header.p_vaddr as usize) as *const u8;
            // SAFETY: the notes are a part of a loaded segment.
            build_id_among(unsafe { core::slice::from_raw_parts(at, header.p_memsz as usize) })
        })
    }

    /// Calls `see` with what the file has in memory that does not change: its code and its constants.
    pub fn each_constants(&self, see: &mut dyn FnMut(&'static [u8])) {
        // SAFETY: the headers of a loaded file are mapped as long as it is.
        let headers = unsafe { &*self.headers };
        for header in headers {
            let access = header.p_flags & (libc::PF_R | libc::PF_W);
            if header.p_type == libc::PT_LOAD && access == libc::PF_R {
                let at = self.base.wrapping_add(header.p_vaddr as usize) as *const u8;
                // SAFETY: a readable segment that nothing writes to, of a loaded file.
                see(unsafe { core::slice::from_raw_parts(at, header.p_memsz as usize) });
            }
        }
    }

    /// Calls `see` with the addresses of the file's variables, and of those of the thread that has found the file.
    pub fn each_variables(&self, see: &mut dyn FnMut(Range<usize>)) {
        // SAFETY: the headers of a loaded file are mapped as long as it is.
        let headers = unsafe { &*self.headers };
        for header in headers {
            let at = match header.p_type {
                libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => {
                    self.base.wrapping_add(header.p_vaddr as usize)
                }
                libc::PT_TLS if !self.of_thread.is_null() => self.of_thread as usize,
                _ => continue,
            };
            see(at..at.saturating_add(header.p_memsz as usize));
        }
    }

    /// Has the variables of the file that are zero at first on small pages. Where the kernel has huge pages wherever one fits, the
    /// first of them that is used would take 2 MiB. For a file of this code, and before any such variable is read or written to:
    /// nothing else here uses one.
    pub fn take_small_pages(&self) {
        let zeros = self.zeros();
        // SAFETY: the file's own variables; the advice changes no contents.
        let _ = unsafe {
            mm::madvise(zeros.start as *mut c_void, zeros.len(), mm::Advice::LinuxNoHugepage)
        };
    }

    /// The pages of its variables that are zero at first, as no bytes of the file are mapped there.
    fn zeros(&self) -> Range<usize> {
        // SAFETY: the headers of a loaded file are mapped as long as it is.
        let headers = unsafe { &*self.headers };
        let is_it = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_memsz > header.p_filesz + PAGE_BYTES as u64
        };
        let zeros = headers.iter().find(is_it).and_then(|header| {
            let at = self.base.wrapping_add(header.p_vaddr as usize);
            let start = align_up(at.wrapping_add(header.p_filesz as usize), PAGE_BYTES)?;
            Some(start..align_up(at.wrapping_add(header.p_memsz as usize), PAGE_BYTES)?)
        });
        zeros.unwrap_or_default()
    }

    /// The function that the file defines under a name and shows to other files, in the version that
    /// programs get which name none; `None`: there is no such function.
    pub fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let symbol = self.symbol(name)?;
        let value = Redirected::first_value(symbol).unwrap_or_else(|| {
            // SAFETY: `symbol` returns an entry of the file's table, which is mapped as long as the file.
            unsafe { (*symbol).value.load(Relaxed) }
        });
        NonNull::new(self.base.wrapping_add(value) as *mut c_void)
    }

    /// Calls `see` with the address of each function that the file defines under a name for other files, in any version: a program may have been linked with one
    /// that it names.
    pub fn each_function(&self, name: &CStr, see: &mut dyn FnMut(NonNull<c_void>)) {
        self.each_named(name, &mut |index| {
            let Some(symbols) = self.table::<Symbol>(DT_SYMTAB) else { return false };
            // SAFETY: an entry of the file's table.
            let symbol = unsafe { &*symbols.add(index) };
            let value = Redirected::first_value(symbol);
            let value = value.unwrap_or_else(|| symbol.value.load(Relaxed));
            let at = self.base.wrapping_add(value);
            let function = match symbol.info & 0xf {
                STT_FUNC => at,
                // SAFETY: as the loader does, to bind those that use the function. On this processor it has no arguments.
                STT_GNU_IFUNC if cfg!(target_arch = "x86_64") => unsafe {
                    core::mem::transmute::<usize, extern "C" fn() -> usize>(at)()
                },
                _ => return false,
            };
            if let Some(function) =
                NonNull::new(function as *mut c_void).filter(|_| symbol.section != 0)
            {
                see(function);
            }
            false
        });
    }

    /// Makes the file's names stand for other functions: the loader finds these from now on wherever it finds
    /// the file's. Names that the file does not define are passed over. False: the table cannot be
    /// written to, and all is as it was.
    ///
    /// # Safety
    /// Each function does what the file's function of that name does, for every caller. No other thread does the
    /// same at the same time.
    pub unsafe fn redirect(&self, functions: &[(&CStr, *const ())]) -> bool {
        let symbols = || {
            let known = |(name, to): &(&CStr, *const ())| Some((self.symbol(name)?, to.addr()));
            functions.iter().filter_map(known)
        };
        let addresses = || symbols().map(|(symbol, _)| symbol.addr());
        let (Some(first), Some(last)) = (addresses().min(), addresses().max()) else { return true };
        let Some(end) = align_up(last + size_of::<Symbol>(), PAGE_BYTES) else { return false };
        let first = align_down(first, PAGE_BYTES);
        let Some(access) = self.access_to(first..end) else { return false };
        let (at, len) = (first as *mut c_void, end - first);
        if Redirected::room() < symbols().count() {
            return false;
        }
        // SAFETY: the pages stay readable, and executable if they were.
        if unsafe { mm::mprotect(at, len, access | MprotectFlags::WRITE) }.is_err() {
            return false;
        }
        for (symbol, to) in symbols() {
            Redirected::note(symbol);
            // SAFETY: an entry of the table, which can be written to meanwhile. Threads that read it find either
            // function, and the caller promises that both do.
            unsafe { (*symbol).value.store(to.wrapping_sub(self.base), Release) };
        }
        // SAFETY: as it was before. Where this fails the table stays writable.
        let _ = unsafe { mm::mprotect(at, len, access) };
        true
    }

    /// What is allowed in the segment that holds a range.
    fn access_to(&self, range: Range<usize>) -> Option<MprotectFlags> {
        // SAFETY: the headers of a loaded file are mapped as long as it is.
        let headers = unsafe { &*self.headers };
        let holds = |header: &&libc::Elf64_Phdr| {
            let at = self.base.wrapping_add(header.p_vaddr as usize);
            let end = align_up(at.wrapping_add(header.p_memsz as usize), PAGE_BYTES);
            header.p_type == libc::PT_LOAD && at <= range.start && Some(range.end) <= end
        };
        let flags = headers.iter().find(holds)?.p_flags;
        let allowed =
            |flag, access| if flags & flag != 0 { access } else { MprotectFlags::empty() };
        Some(
            allowed(libc::PF_R, MprotectFlags::READ)
                | allowed(libc::PF_W, MprotectFlags::WRITE)
                | allowed(libc::PF_X, MprotectFlags::EXEC),
        )
    }

    fn symbol(&self, name: &CStr) -> Option<*const Symbol> {
        let symbols = self.table::<Symbol>(DT_SYMTAB)?;
        let versions = self.table::<u16>(DT_VERSYM);
        let mut found = None;
        self.each_named(name, &mut |index| {
            // SAFETY: an entry of the file's tables.
            let (symbol, is_hidden) = unsafe {
                let is_hidden =
                    versions.is_some_and(|versions| *versions.add(index) & VERSION_HIDDEN != 0);
                (&*symbols.add(index), is_hidden)
            };
            let is_it = symbol.info & 0xf == STT_FUNC && symbol.section != 0 && !is_hidden;
            if is_it {
                found = Some(ptr::from_ref(symbol));
            }
            is_it
        });
        found
    }

    /// The name that the linker has given a library (`DT_SONAME`); `None`: it has none, as a program.
    pub fn name(&self) -> Option<&CStr> {
        let names = self.table::<c_char>(DT_STRTAB)?;
        let offset = self.entry(DT_SONAME)?;
        // SAFETY: the name is a string of the file's table of names.
        Some(unsafe { CStr::from_ptr(names.add(offset)) })
    }

    /// A table whose address the dynamic section has. The loader has added the base where it may write
    /// to the section.
    fn table<T>(&self, tag: u64) -> Option<*const T> {
        let value = self.entry(tag)?;
        let at = if value < self.base { self.base.wrapping_add(value) } else { value };
        Some(at as *const T)
    }

    fn entry(&self, tag: u64) -> Option<usize> {
        let mut at = self.dynamic;
        if at.is_null() {
            return None;
        }
        // SAFETY: the section of a loaded file ends with an entry of tag `DT_NULL`.
        unsafe {
            while (*at).tag != DT_NULL {
                if (*at).tag == tag {
                    return Some((*at).value);
                }
                at = at.add(1);
            }
        }
        None
    }
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// Changed by [`Module::redirect`] alone.
    value: AtomicUsize,
    size: u64,
}

/// What a symbol named before [`Module::redirect`].
struct Redirected {
    symbol: AtomicPtr<Symbol>,
    value: AtomicUsize,
}

/// Symbols that can be redirected in a process.
const MOST_REDIRECTED: usize = 64;
static REDIRECTED: [Redirected; MOST_REDIRECTED] =
    [const { Redirected { symbol: AtomicPtr::new(ptr::null_mut()), value: AtomicUsize::new(0) } };
        MOST_REDIRECTED];

impl Redirected {
    fn first_value(symbol: *const Symbol) -> Option<usize> {
        let is_it = |entry: &&Self| entry.symbol.load(Acquire).cast_const() == symbol;
        Some(REDIRECTED.iter().find(is_it)?.value.load(Relaxed))
    }

    fn room() -> usize {
        REDIRECTED.iter().filter(|entry| entry.symbol.load(Relaxed).is_null()).count()
    }

    /// Keeps what a symbol names, at the first time.
    fn note(symbol: *const Symbol) {
        let free = REDIRECTED.iter().find(|entry| entry.symbol.load(Relaxed).is_null());
        if let (None, Some(entry)) = (Self::first_value(symbol), free) {
            // SAFETY: an entry of a loaded file's table.
            entry.value.store(unsafe { (*symbol).value.load(Relaxed) }, Relaxed);
            entry.symbol.store(symbol.cast_mut(), Release);
        }
    }
}

struct Search<F> {
    is_it: F,
    found: Option<Module>,
}

/// The first file of which this is true.
fn find(is_it: impl FnMut(&Module) -> bool) -> Option<Module> {
    fn walk<F: FnMut(&Module) -> bool>(mut search: Search<F>) -> Option<Module> {
        // SAFETY: `look` is called with what is passed here, and the loader's list lasts as long as the call.
        unsafe { libc::dl_iterate_phdr(Some(look::<F>), (&raw mut search).cast()) };
        search.found
    }
    walk(Search { is_it, found: None })
}

/// Ends the walk over the files, with 1, at the one that is searched for.
///
/// # Safety
/// `info` describes a file and `search` is a [`Search`] of this type.
unsafe extern "C" fn look<F: FnMut(&Module) -> bool>(
    info: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: what the caller promises; a file has as many headers as it says.
    let (base, headers, of_thread, search) = unsafe {
        let info = &*info;
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let of_thread = info.dlpi_tls_data.cast_const();
        (info.dlpi_addr as usize, headers, of_thread, &mut *search.cast::<Search<F>>())
    };
    let at = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let mut dynamic = core::ptr::null();
    let mut addresses = None;
    for header in headers {
        match header.p_type {
            libc::PT_DYNAMIC => dynamic = at(header) as *const Dynamic,
            libc::PT_LOAD => {
                // Segments lie in order of address.
                let end = at(header).wrapping_add(header.p_memsz as usize);
                let start = addresses.map_or(at(header), |all: Range<usize>| all.start);
                addresses = Some(start..end);
            }
            _ => {}
        }
    }
    let Some(addresses) = addresses else { return 0 };
    let module = Module { addresses, base, dynamic, headers, of_thread };
    let is_it = (search.is_it)(&module);
    if is_it {
        search.found = Some(module);
    }
    c_int::from(is_it)
}

/// The build id among notes: each is the lengths of its name and of its contents, a type, and both, padded to words of 4 bytes.
fn build_id_among(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    const NAME: &[u8] = b"GNU\0";
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| {
            let bytes = head.get(at..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let (name_len, len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let (name, rest) = rest.split_at_checked(name_len.next_multiple_of(4))?;
        let contents = rest.get(..len)?;
        if kind == BUILD_ID && name == NAME && len > 0 {
            return Some(contents);
        }
        // The last one may lack its padding.
        notes = rest.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn variables_of_the_program_and_of_the_thread_are_seen() {
        static OF_PROGRAM: AtomicUsize = AtomicUsize::new(7);
        std::thread_local!(static OF_THREAD: AtomicUsize = const { AtomicUsize::new(8) });
        let look = || {
            let of_thread = OF_THREAD.with(|of_thread| ptr::from_ref(of_thread) as usize);
            let (mut seen, places) = ([0, 0], [&raw const OF_PROGRAM as usize, of_thread]);
            Module::program().unwrap().each_variables(&mut |range| {
                for (count, at) in seen.iter_mut().zip(places) {
                    *count += usize::from(range.contains(&at));
                }
            });
            seen
        };
        assert_eq!(look(), [1, 1]);
        assert_eq!(std::thread::spawn(look).join().unwrap(), [1, 1]);
        // Of libraries as well.
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() } as usize;
        let mut count = 0;
        Module::named(LIBC)
            .unwrap()
            .each_variables(&mut |range| count += usize::from(range.contains(&errno)));
        assert_eq!(count, 1);
    }

    #[test]
    fn a_build_id_is_found_among_notes() {
        let note = |kind: u32, name: &[u8; 4], contents: &[u8]| {
            let mut note = std::vec::Vec::from(4u32.to_ne_bytes());
            note.extend((contents.len() as u32).to_ne_bytes());
            note.extend(kind.to_ne_bytes());
            note.extend(name);
            note.extend(contents);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let mut notes = note(1, b"GNU\0", b"version");
        notes.extend(note(3, b"NOT\0", b"other"));
        assert_eq!(build_id_among(&notes), None);
        notes.extend(note(3, b"GNU\0", b"the number!!"));
        assert_eq!(build_id_among(&notes), Some(&b"the number!!"[..]));
        for end in 0..notes.len() {
            assert_eq!(build_id_among(&notes[..end]), None);
        }
        notes[0] = 255;
        assert_eq!(build_id_among(&notes), None);
        notes.fill(255);
        assert_eq!(build_id_among(&notes), None);
    }

    #[test]
    fn code_and_data_are_of_the_program_and_the_heap_is_nobodys() {
        static DATA: [u8; 8] = [1; 8];
        let program = Module::around(build_id_among as *const () as usize).expect("the program");
        let holds = |address: usize| program.addresses().contains(&address);
        assert!(holds(look::<fn(&Module) -> bool> as *const () as usize));
        assert!(holds(DATA.as_ptr().addr()) && !holds(libc::malloc as *const () as usize));
        let heap = std::boxed::Box::new(1);
        assert!(Module::around((&raw const *heap).addr()).is_none());
        assert!(Module::around(0).is_none());
        let mut count = 0;
        Module::each(&mut |module| {
            let is_program = module.addresses() == program.addresses();
            assert_eq!(is_program, count == 0);
            count += 1;
        });
        let first = Module::program().expect("the program").addresses();
        assert!(count > 1 && first == program.addresses());
        let mut has_code = false;
        program.each_constants(&mut |bytes| {
            has_code |= bytes.as_ptr_range().contains(&(build_id_among as *const u8));
            assert!(!bytes.as_ptr_range().contains(&(&raw const REDIRECTED).cast()));
        });
        assert!(has_code);
    }

    extern "C" fn no_timers() -> c_int {
        77
    }

    #[test]
    fn a_redirected_name_stands_for_the_other_function_and_the_first_is_still_found() {
        let libc = Module::named(LIBC).expect("a dynamically linked test");
        // Nothing here needs it.
        let name = c"mcheck_check_all";
        let Some(first) = libc.function(name) else { return };
        let by_loader = || {
            // SAFETY: the name is NUL-terminated.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        assert_eq!(by_loader(), first.as_ptr());
        let functions = [(name, no_timers as *const ()), (c"no_such_function", ptr::null())];
        // SAFETY: nothing calls the function.
        assert!(unsafe { libc.redirect(&functions) });
        assert_eq!(by_loader(), no_timers as *mut c_void);
        assert_eq!(libc.function(name), Some(first));
        // SAFETY: as above.
        assert!(unsafe { libc.redirect(&functions[..1]) } && libc.function(name) == Some(first));
    }

    #[test]
    fn libc_defines_what_the_loader_finds_in_it() {
        let libc = Module::named(LIBC).expect("a dynamically linked test");
        assert_eq!(
            libc.addresses(),
            Module::around(libc::abort as *const () as usize).unwrap().addresses()
        );
        for name in [c"abort", c"malloc_trim", c"__libc_malloc", c"__register_atfork", c"qsort"] {
            // SAFETY: the name is NUL-terminated.
            let loaders = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(
                libc.function(name).map(NonNull::as_ptr),
                NonNull::new(loaders).map(NonNull::as_ptr)
            );
        }
        assert_eq!(libc.function(c"no_such_function"), None);
        assert!(Module::defining(c"no_such_function").is_none());
        let first = Module::defining(c"qsort").expect("the C library has it");
        assert_eq!(first.addresses(), libc.addresses());
        assert!(Module::named(c"libnone.so.1").is_none());
    }
}
