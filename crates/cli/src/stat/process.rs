//! Finds the library's figures in another process's memory, and reads them.

use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use spandrel_console::Failure;
use spandrel_pages::live::{
    BOUNDS_AT, FIGURES_AT, MAGIC, MODE, MODE_AT, SLICE, SLICES, SLICES_AT, STAGE_AT, SYMBOL, Stage,
    WORDS,
};
use spandrel_pages::{AllocatorId, FIGURES, Figures};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What was read.
pub struct Reading {
    /// The program's short name.
    pub program: String,
    /// How far the library is in it.
    pub stage: Stage,
    /// The mode that it is in.
    pub mode: String,
    /// The addresses of each allocator but glibc.
    pub slices: Vec<(AllocatorId, Range<u64>)>,
    /// Addresses of the native heap's tables.
    pub tables: Range<u64>,
    /// Of these, of the page heap's records.
    pub records: Range<u64>,
    /// Of the heap; empty: it has not started.
    pub heap: Range<u64>,
    /// In the order of their numbers.
    pub figures: Figures,
}

impl Reading {
    /// Reads the figures of a process.
    pub fn of(pid: i32) -> Result<Self, Failure> {
        let at = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let program = fs::read_to_string(at("comm")).map_err(|why| forbidden(pid, "?", why))?;
        let program = program.trim_end().to_owned();
        let maps = fs::read_to_string(at("maps")).map_err(|why| forbidden(pid, &program, why))?;
        if maps.is_empty() {
            return Err(without_memory(pid, &program));
        }
        let window = Window::at(pid, &program, &maps)?;
        let words = window.read().map_err(|why| forbidden(pid, &program, why))?;
        let Some(words) = words else {
            return Err(Failure::refused(format!(
                "{program} (pid {pid}) runs on another version of Spandrel; use the command that \
                 came with it"
            )));
        };
        let [tables, records, caches, heap, end] =
            std::array::from_fn(|index| words[BOUNDS_AT + index]);
        Ok(Self {
            program,
            stage: Stage::of(words[STAGE_AT]),
            mode: mode_of(&words),
            slices: slices_of(&words),
            tables: tables..heap,
            records: records..caches,
            heap: heap..end,
            figures: figures_of(&words),
        })
    }
}

type Words = [u64; WORDS];

fn figures_of(words: &Words) -> Figures {
    std::array::from_fn(|index| words[FIGURES_AT + index])
}

fn mode_of(words: &Words) -> String {
    let bytes: Vec<u8> =
        words[MODE_AT..][..MODE].iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let cut = if name.len() == bytes.len() { "…" } else { "" };
    format!("{}{cut}", String::from_utf8_lossy(name))
}

fn slices_of(words: &Words) -> Vec<(AllocatorId, Range<u64>)> {
    let slices = words[SLICES_AT..][..SLICES * SLICE].chunks_exact(SLICE);
    slices
        .filter(|slice| slice[2] > slice[1])
        .filter_map(|slice| {
            let owner = AllocatorId::from_byte(u8::try_from(slice[0]).ok()?)?;
            Some((owner, slice[1]..slice[2]))
        })
        .collect()
}

/// Why there is a process, and no memory of it.
fn without_memory(pid: i32, program: &str) -> Failure {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_kernels = status.lines().any(|line| {
        line.strip_prefix("Kthread:").is_some_and(|rest| rest.trim() == "1")
            // Linux before 6.9 does not tell.
            || line.strip_prefix("PPid:").is_some_and(|rest| rest.trim() == "2")
            || (pid == 2 && line == "Name:\tkthreadd")
    });
    Failure::refused(if is_kernels {
        format!("{program} (pid {pid}) is a thread of the kernel, which has no memory of its own")
    } else {
        format!("{program} (pid {pid}) has ended")
    })
}

/// Where a process has its figures, to read them again and again.
pub struct Window {
    memory: File,
    address: u64,
}

impl Window {
    /// Finds them in a process.
    pub fn open(pid: i32) -> Result<Self, Failure> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        Self::at(pid, "?", &maps.map_err(|why| forbidden(pid, "?", why))?)
    }

    /// The figures now; `None`: it is another program by now, or is gone.
    pub fn figures(&self) -> Option<Figures> {
        Some(figures_of(&self.read().ok()??))
    }

    fn at(pid: i32, program: &str, maps: &str) -> Result<Self, Failure> {
        let address = address_of_figures(pid, maps).map_err(|missing| {
            let why = match missing {
                Missing::Library => {
                    "does not run on Spandrel: start it with `spandrel run` or with \
                     LD_PRELOAD=libspandrel.so; a program that has Spandrel linked in shows its \
                     figures if it is not stripped"
                }
                Missing::File => {
                    "runs on a libspandrel.so whose file was replaced since it started: start it \
                     anew"
                }
            };
            Failure::refused(format!("{program} (pid {pid}) {why}"))
        })?;
        let memory = File::open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|why| forbidden(pid, program, why))?;
        Ok(Self { memory, address })
    }

    /// What is there; `None`: nothing of this version.
    fn read(&self) -> std::io::Result<Option<Words>> {
        let mut bytes = [0; size_of::<Words>()];
        // A shorter form of another version may end before.
        self.memory.read_exact_at(&mut bytes, self.address)?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok((words[0] == MAGIC && words[1] == FIGURES as u64).then_some(words))
    }
}

/// What the number of a process was good for, when its files could not be read.
pub fn forbidden(pid: i32, program: &str, why: std::io::Error) -> Failure {
    // ESRCH: it has ended while it was looked at.
    let is_gone = why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(3);
    if is_gone {
        return Failure::refused(if program == "?" {
            format!("there is no process {pid}; `pgrep NAME` finds the number of a running program")
        } else {
            format!("{program} (pid {pid}) has ended")
        });
    }
    let way_out = match why.kind() {
        ErrorKind::PermissionDenied => {
            let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
            let scope = scope.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            way_to_read(nix::unistd::geteuid().is_root(), scope)
        }
        _ => "",
    };
    Failure::refused(format!("the memory of {program} (pid {pid}) cannot be read: {why}{way_out}"))
}

/// What gives the rights of a debugger, by what the user has and what Yama allows.
fn way_to_read(is_root: bool, scope: u32) -> &'static str {
    match (is_root, scope) {
        (_, 3..) => {
            "; /proc/sys/kernel/yama/ptrace_scope is 3, which forbids it until the next boot"
        }
        (true, _) => {
            "; root lacks the capability CAP_SYS_PTRACE here, as in a container \
             (docker run --cap-add SYS_PTRACE), or the process is in another user namespace"
        }
        (false, 0) => "; it takes the user that the process runs as, or root (sudo)",
        (false, _) => "; it takes root (sudo), as /proc/sys/kernel/yama/ptrace_scope is not 0",
    }
}

/// Why there are no figures.
#[derive(Debug, PartialEq)]
enum Missing {
    /// Neither the library nor a program that has it linked in.
    Library,
    /// The file that the library was loaded from.
    File,
}

/// Where the figures are in the process: in the library if it is loaded, else in
/// the program.
fn address_of_figures(pid: i32, maps: &str) -> Result<u64, Missing> {
    let first_mappings = maps.lines().filter_map(first_mapping);
    let (libraries, others): (Vec<_>, Vec<_>) =
        first_mappings.partition(|(_, path)| is_the_library(path));
    // As the process sees it, also in a container.
    let mut in_library = libraries.iter().map(|(base, path)| {
        let file = File::open(format!("/proc/{pid}/root{path}")).ok()?;
        Some(symbol(file)?.resolve(*base))
    });
    if let Some(address) = in_library.find_map(|address| address) {
        return Ok(address);
    }
    // The link leads to the program's file even when another has taken its place.
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let program = fs::read_link(&link).ok();
    let in_program = others
        .iter()
        .find(|(_, path)| Some(Path::new(path)) == program.as_deref())
        .and_then(|(base, _)| Some(symbol(File::open(&link).ok()?)?.resolve(*base)));
    in_program.ok_or(if libraries.is_empty() { Missing::Library } else { Missing::File })
}

/// What the kernel adds to the name of a file that is gone.
const REPLACED: &str = " (deleted)";

fn is_the_library(path: &str) -> bool {
    let path = path.strip_suffix(REPLACED).unwrap_or(path);
    Path::new(path)
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("libspandrel.so"))
}

/// Where a file is mapped from its beginning on, and the file, if the line says so.
fn first_mapping(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (range, _permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = &line[line.find('/')?..];
    let base = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    (u64::from_str_radix(offset, 16).ok()? == 0).then_some((base, path))
}

/// A symbol's address in its file.
struct Symbol {
    address: u64,
    relative: bool,
}

impl Symbol {
    fn resolve(&self, base: u64) -> u64 {
        if self.relative { base.wrapping_add(self.address) } else { self.address }
    }
}

fn symbol(file: File) -> Option<Symbol> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let mut symbols = elf.dynamic_symbols().chain(elf.symbols());
    let found = symbols.find(|symbol| symbol.name() == Ok(SYMBOL) && symbol.address() != 0)?;
    let relative = elf.elf_header().e_type(elf.endian()) == object::elf::ET_DYN;
    Some(Symbol { address: found.address(), relative })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    #[test]
    fn lines_of_maps() {
        let line =
            "7f96da200000-7f96da227000 r--p 00000000 fe:00 53  /opt/with blank/libspandrel.so.0";
        let (base, path) = first_mapping(line).unwrap();
        assert_eq!((base, path), (0x7f96_da20_0000, "/opt/with blank/libspandrel.so.0"));
        assert!(is_the_library(path));
        assert!(is_the_library("/opt/libspandrel.so (deleted)"));
        let maps = "7f96da200000-7f96da227000 r--p 00000000 fe:00 53  /no/libspandrel.so (deleted)";
        assert_eq!(address_of_figures(i32::MAX, maps), Err(Missing::File));
        assert_eq!(address_of_figures(i32::MAX, ""), Err(Missing::Library));
        assert!(first_mapping("7f96da2bd000-7f96da2c9000 r--p 000bb000 fe:00 5 /a").is_none());
        assert!(first_mapping("7ffd0000-7ffd1000 rw-p 00000000 00:00 0 [stack]").is_none());
        assert!(first_mapping("").is_none());
    }

    #[test]
    fn words_are_told_apart() {
        let mut words = [0; WORDS];
        words[MODE_AT..][..2]
            .copy_from_slice(&[b"switch=j", b"emalloc\0"].map(|b| u64::from_le_bytes(*b)));
        assert_eq!(mode_of(&words), "switch=jemalloc");
        words[MODE_AT..][..MODE].fill(u64::from_le_bytes(*b"template"));
        assert!(mode_of(&words).ends_with("template…"));
        words[SLICES_AT..][..6].copy_from_slice(&[4, 10, 20, 99, 30, 40]);
        assert_eq!(slices_of(&words), [(AllocatorId::Mmap, 10..20)]);
    }

    #[test]
    fn who_has_no_memory_is_told_apart() {
        let said = |code: &Failure, text: &str| code.code == 2 && code.message.contains(text);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        // The end of the process, which stays a zombie: a process that is just executing a program has no memory either,
        // and still its old name.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(nix::unistd::Pid::from_raw(pid)), flags).unwrap();
        let ended = Reading::of(pid).err().unwrap();
        assert!(said(&ended, "true (pid"), "{ended:?}");
        child.wait().unwrap();
        assert!(said(&Reading::of(pid).err().unwrap(), "there is no process"));
        let denied = forbidden(1, "a", ErrorKind::PermissionDenied.into());
        assert!(said(&denied, "cannot be read: permission denied; "), "{denied:?}");
        let gone = forbidden(1, "a", std::io::Error::from_raw_os_error(3));
        assert!(said(&gone, "a (pid 1) has ended"), "{gone:?}");
    }

    #[test]
    fn root_is_not_sent_to_sudo() {
        for scope in 0..4 {
            assert!(!way_to_read(true, scope).contains("sudo"));
            assert_eq!(way_to_read(false, scope).contains("sudo"), scope < 3);
        }
        assert!(way_to_read(true, 1).contains("CAP_SYS_PTRACE"));
    }

    #[test]
    fn who_cannot_be_read_is_told_why() {
        assert_eq!(Reading::of(i32::MAX).err().unwrap().code, 2);
        // This process does not run on Spandrel.
        let failure = Reading::of(std::process::id() as i32).err().unwrap();
        assert!(failure.code == 2 && failure.message.contains("spandrel run"), "{failure:?}");
    }
}
