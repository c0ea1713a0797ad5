//! Turns the relocatable objects of a foreign allocator into private ones.
//!
//! An allocator that lives inside another one must not be found by accident: its `malloc` may not
//! be anybody's `malloc`, it may not ask the kernel for memory behind our back, and it may not run
//! before it is asked to. All three are properties of its symbol and section tables, so they are
//! established there, on the objects that its own build produced:
//!
//! - every symbol that the objects define for others gets a new, unique name and hidden visibility;
//! - the calls that map memory or register fork handlers are bound to hooks of ours;
//! - constructors and destructors are dropped.
//!
//! Debugging sections are dropped too: they name sources that are gone after the build, they are
//! most of the size, and their paths would make the result differ from machine to machine.
//!
//! Invariants: the code and data of an object are never changed, only what the linker reads; an
//! object that cannot be understood completely is an error and never passes through half done.

use std::collections::{BTreeMap, BTreeSet};

use object::build::elf::{Builder, SectionData};
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endian, Endianness};

/// One relocatable object, outside or inside an archive.
#[derive(Clone)]
pub struct Member {
    /// File name, for messages and for the rewritten file.
    pub name: String,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What to do with the symbols of one allocator.
pub struct Plan<'a> {
    /// The new name of a symbol that the objects define.
    pub rename: &'a dyn Fn(&str) -> String,
    /// Undefined symbols that are bound to something else: (name, new name).
    pub hooks: &'a [(&'a str, &'a str)],
    /// Undefined symbols that must not be left, each with the reason.
    pub forbidden: &'a [(&'a str, &'a str)],
    /// New names that the result has to define.
    pub required: &'a [&'a str],
}

/// The rewritten objects and what became of their symbols.
pub struct Rewritten {
    /// The objects, in the order in which they came.
    pub members: Vec<Member>,
    /// New names of all defined symbols.
    pub defined: BTreeSet<String>,
    /// Names that something outside has to define, hooks included.
    pub undefined: BTreeSet<String>,
}

/// An object that has been looked over, and which of its sections go, by section index.
struct Prepared {
    name: String,
    data: Vec<u8>,
    goes: Vec<bool>,
}

/// Splits a static library into its objects.
#[cfg_attr(not(feature = "jemalloc"), allow(dead_code))]
pub fn archive_members(archive: &[u8]) -> Result<Vec<Member>, String> {
    let file = object::read::archive::ArchiveFile::parse(archive)
        .map_err(|e| format!("not a static library: {e}"))?;
    let mut members = Vec::new();
    for member in file.members() {
        let member = member.map_err(|e| format!("damaged static library: {e}"))?;
        let data = member.data(archive).map_err(|e| format!("damaged static library: {e}"))?;
        members.push(Member {
            name: String::from_utf8_lossy(member.name()).into_owned(),
            data: data.to_vec(),
        });
    }
    if members.is_empty() {
        return Err("the static library is empty".into());
    }
    Ok(members)
}

/// Rewrites all objects of one allocator together, because they refer to each other.
pub fn rewrite(members: Vec<Member>, plan: &Plan<'_>) -> Result<Rewritten, String> {
    let prepared = members
        .into_iter()
        .map(|m| prepare(&m).map_err(|e| format!("{}: {e}", m.name)))
        .collect::<Result<Vec<_>, String>>()?;
    let names = new_names(&prepared, plan)?;

    let mut out = Rewritten {
        members: Vec::new(),
        defined: names.values().cloned().collect(),
        undefined: BTreeSet::new(),
    };
    for member in &prepared {
        let data = patch(member, &names, plan, &mut out.undefined)
            .map_err(|e| format!("{}: {e}", member.name))?;
        out.members.push(Member { name: member.name.clone(), data });
    }
    check(&out, plan)?;
    Ok(out)
}

/// The outcome as a whole: nothing missing, nothing that we promised to keep out.
fn check(out: &Rewritten, plan: &Plan<'_>) -> Result<(), String> {
    for name in plan.required {
        if !out.defined.contains(*name) {
            return Err(format!(
                "nothing defines `{name}` after the renaming; this version of the allocator is not \
                 one that we know"
            ));
        }
    }
    for (name, reason) in plan.forbidden {
        if out.undefined.contains(*name) {
            return Err(format!("the objects call `{name}`: {reason}"));
        }
    }
    Ok(())
}

/// Maps every symbol that the objects define for each other or for outsiders to its new name.
fn new_names(members: &[Prepared], plan: &Plan<'_>) -> Result<BTreeMap<String, String>, String> {
    let mut names = BTreeMap::new();
    let mut origin: BTreeMap<String, String> = BTreeMap::new();
    let mut strong: BTreeMap<String, &str> = BTreeMap::new();
    for member in members {
        let object = read(&member.data).map_err(|e| format!("{}: {e}", member.name))?;
        for symbol in &object.symbols {
            if symbol.st_bind() == elf::STB_LOCAL || !is_defined(symbol) {
                continue;
            }
            let old = text(&symbol.name)?;
            let is_strong =
                symbol.st_bind() == elf::STB_GLOBAL && symbol.st_shndx != elf::SHN_COMMON;
            let before = is_strong.then(|| strong.insert(old.clone(), &member.name)).flatten();
            if let Some(first) = before {
                return Err(format!("`{old}` is defined by {first} and by {}", member.name));
            }
            let new = (plan.rename)(&old);
            match origin.insert(new.clone(), old.clone()) {
                Some(other) if other != old => {
                    return Err(format!("`{other}` and `{old}` would both become `{new}`"));
                }
                _ => {}
            }
            names.insert(old, new);
        }
    }
    Ok(names)
}

/// Writes one object with its new symbol table and without the sections that we drop.
fn patch(
    member: &Prepared,
    names: &BTreeMap<String, String>,
    plan: &Plan<'_>,
    undefined: &mut BTreeSet<String>,
) -> Result<Vec<u8>, String> {
    let mut object = read(&member.data)?;

    // The null section is not in the builder's table.
    for (section, goes) in object.sections.iter_mut().zip(&member.goes[1..]) {
        section.delete = *goes;
    }
    refuse_dangling(&object)?;

    for symbol in &mut object.symbols {
        if symbol.st_bind() == elf::STB_LOCAL || symbol.name.is_empty() {
            continue;
        }
        let old = text(&symbol.name)?;
        let hook = plan.hooks.iter().find(|(name, _)| *name == old);
        let (new, ours) = match (names.get(&old), hook) {
            (Some(new), _) => (new.clone(), true),
            (None, Some((_, hook))) => (hook.to_string(), true),
            (None, None) => (old.clone(), false),
        };
        // The most constraining visibility of all mentions of a symbol wins: hidden references keep
        // the hooks private too, wherever they are defined.
        if ours {
            let others = symbol.st_other.0 & !elf::STV_MASK;
            symbol.st_other = elf::SymbolOther(others | elf::STV_HIDDEN.0);
        }
        if !names.contains_key(&old) {
            undefined.insert(new.clone());
        }
        symbol.name = new.into_bytes().into();
    }

    let mut data = Vec::new();
    object.write(&mut data).map_err(|e| format!("cannot write the object: {e}"))?;
    Ok(data)
}

/// A relocation in a section that stays must not need a symbol of a section that goes.
fn refuse_dangling(object: &Builder<'_>) -> Result<(), String> {
    for section in &object.sections {
        let SectionData::Relocation(relocations) = &section.data else {
            continue;
        };
        for relocation in relocations {
            let target = relocation.symbol.and_then(|id| object.symbols.get(id).section);
            if target.is_some_and(|id| object.sections.get(id).delete) {
                return Err(format!(
                    "`{}` refers to a section that has to be dropped",
                    text(&section.name)?
                ));
            }
        }
    }
    Ok(())
}

/// Is this the place where the symbol lives (and not just a reference to it)?
fn is_defined(symbol: &object::build::elf::Symbol<'_>) -> bool {
    symbol.section.is_some() || symbol.st_shndx != elf::SHN_UNDEF
}

/// Sections without which the code is the same and the link is cleaner.
fn is_dropped(name: &str, kind: elf::SectionType) -> bool {
    const ARRAYS: [&str; 5] = [".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors"];
    const BY_PREFIX: [&str; 10] = [
        ".debug",
        ".zdebug",
        ".stab",
        ".gdb_index",
        ".gnu.lto_",
        ".gnu.debuglto_",
        ".llvm.",
        ".llvm_addrsig",
        ".llvmbc",
        ".llvmcmd",
    ];
    let is_array = ARRAYS
        .iter()
        .any(|a| name.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
    matches!(
        kind,
        elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY | elf::SHT_GROUP
    ) || is_array
        || BY_PREFIX.iter().any(|p| name.starts_with(p))
}

/// Checks that the bytes are an object that we can rewrite, and relabels the sections that will go
/// as plain data, so that the reader neither parses nor refuses them.
fn prepare(member: &Member) -> Result<Prepared, String> {
    let data = &member.data[..];
    if data.starts_with(b"BC\xc0\xde") || data.starts_with(&[0xde, 0xc0, 0x17, 0x0b]) {
        return Err(
            "LLVM bitcode instead of machine code; build without -flto (remove it from CFLAGS)"
                .into(),
        );
    }
    let header = elf::FileHeader64::<Endianness>::parse(data)
        .map_err(|_| "not a 64-bit ELF object; only those can be rewritten".to_string())?;
    let endian = header.endian().map_err(|e| e.to_string())?;
    if header.e_type(endian) != elf::ET_REL {
        return Err("an ELF file, but not a relocatable object".into());
    }
    let sections =
        header.sections(endian, data).map_err(|e| format!("damaged section table: {e}"))?;

    let mut goes = vec![false; sections.len()];
    let mut has_lto = false;
    let mut has_content = false;
    for (index, section) in sections.enumerate().skip(1) {
        let name = section_name(&sections, endian, section)?;
        let kind = section.sh_type(endian);
        goes[index.0] = is_dropped(&name, kind);
        has_lto |= name.starts_with(".gnu.lto_");
        has_content |= section.sh_flags(endian).contains(elf::SHF_ALLOC)
            && kind != elf::SHT_NOTE
            && section.sh_size(endian) != 0;
    }
    if has_lto && !has_content {
        return Err(
            "GCC's LTO data instead of machine code; build without -flto (remove it from CFLAGS)"
                .into(),
        );
    }

    for (index, section) in sections.enumerate().skip(1) {
        let kind = section.sh_type(endian);
        if kind == elf::SHT_REL || kind == elf::SHT_RELA {
            let target = section.sh_info(endian) as usize;
            goes[index.0] |= goes.get(target).copied().unwrap_or(false);
        }
    }

    let mut out = member.data.clone();
    let table: u64 = header.e_shoff(endian);
    let entry = u64::from(header.e_shentsize(endian));
    for (index, section) in sections.enumerate().skip(1) {
        if let Some((_, group)) = section.group(endian, data).map_err(|e| e.to_string())? {
            let stays =
                group.iter().map(|i| i.get(endian) as usize).find(|i| goes.get(*i) == Some(&false));
            if let Some(stays) = stays {
                let member =
                    sections.section(object::SectionIndex(stays)).map_err(|e| e.to_string())?;
                return Err(format!(
                    "`{}` belongs to a section group that the linker may discard; groups of code \
                     or data are not supported",
                    section_name(&sections, endian, member)?
                ));
            }
        }
        if goes[index.0] {
            // `sh_type` is the second 32-bit word of a section header.
            let at = (table + entry * index.0 as u64 + 4) as usize;
            let word = endian.write_u32(elf::SHT_PROGBITS.0);
            out.get_mut(at..at + 4).ok_or("damaged section table")?.copy_from_slice(&word);
        }
    }
    Ok(Prepared { name: member.name.clone(), data: out, goes })
}

fn section_name(
    sections: &object::read::elf::SectionTable<'_, elf::FileHeader64<Endianness>>,
    endian: Endianness,
    section: &elf::SectionHeader64<Endianness>,
) -> Result<String, String> {
    let name = sections
        .section_name(endian, section)
        .map_err(|e| format!("damaged section table: {e}"))?;
    text(name)
}

fn read(data: &[u8]) -> Result<Builder<'_>, String> {
    Builder::read64(data).map_err(|e| format!("cannot read the object: {e}"))
}

fn text(name: &[u8]) -> Result<String, String> {
    String::from_utf8(name.to_vec()).map_err(|_| "a name that is not UTF-8".into())
}
