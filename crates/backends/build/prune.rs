//! Takes from one relocatable object what some of its functions reach, and nothing else.
//!
//! C++ written as one translation unit defines far more than is called, and what is not called may
//! need a runtime that is not there. Where every function and variable has a section of its own
//! (`-ffunction-sections -fdata-sections`), relocations say who needs whom.
//!
//! Section groups, by which the linker keeps one copy of an inline function among many objects, are
//! dissolved: there is one object, and its names become private.
//!
//! Constructors are reached by nobody. Neither are unwind tables, which would refer to everything:
//! the object has to be compiled without.

use object::build::elf::{Builder, Section, SectionData, SectionId};
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endian, Endianness};

use crate::rewrite::Member;

/// Keeps what the functions named in `roots` reach.
pub fn prune(member: &Member, roots: &[&str]) -> Result<Member, String> {
    let flat = without_groups(&member.data)?;
    let mut object =
        Builder::read64(&flat[..]).map_err(|e| format!("cannot read the object: {e}"))?;

    mark(&mut object, roots)?;
    drop_unneeded_symbols(&mut object);
    close_gaps(&mut object).ok_or("damaged section table")?;

    let mut data = Vec::new();
    object.write(&mut data).map_err(|e| format!("cannot write the object: {e}"))?;
    Ok(Member { name: member.name.clone(), data })
}

/// Marks the sections for deletion that the roots do not reach.
fn mark(object: &mut Builder<'_>, roots: &[&str]) -> Result<(), String> {
    // Who needs whom: a relocation section says so about the section that it applies to.
    let mut needs: Vec<(SectionId, SectionId)> = Vec::new();
    let mut applies: Vec<(SectionId, SectionId)> = Vec::new();
    for section in &object.sections {
        let (SectionData::Relocation(relocations), Some(from)) =
            (&section.data, section.sh_info_section)
        else {
            continue;
        };
        let to = relocations.iter().filter_map(|r| object.symbols.get(r.symbol?).section);
        needs.extend(to.map(|to| (from, to)));
        applies.push((section.id(), from));
    }

    for section in &mut object.sections {
        section.delete = !is_always_kept(section);
    }
    for root in roots {
        let defined = object.symbols.iter().find(|symbol| *symbol.name == *root.as_bytes());
        let section = defined.and_then(|symbol| symbol.section);
        let section = section.ok_or_else(|| format!("nothing defines `{root}`"))?;
        object.sections.get_mut(section).delete = false;
    }
    let mut grows = true;
    while grows {
        grows = false;
        for (from, to) in &needs {
            if !object.sections.get(*from).delete && object.sections.get(*to).delete {
                object.sections.get_mut(*to).delete = false;
                grows = true;
            }
        }
    }

    for (relocations, to) in applies {
        object.sections.get_mut(relocations).delete = object.sections.get(to).delete;
    }
    Ok(())
}

/// The tables of the object itself, and notes to the linker.
fn is_always_kept(section: &Section<'_>) -> bool {
    matches!(
        section.data,
        SectionData::SectionString
            | SectionData::Symbol
            | SectionData::SymbolSectionIndex
            | SectionData::String
            | SectionData::Note(_)
    ) || *section.name == *b".note.GNU-stack"
}

/// Symbols that no relocation mentions any more and that are defined nowhere would still ask
/// the linker for a definition.
fn drop_unneeded_symbols(object: &mut Builder<'_>) {
    let mut mentioned = Vec::new();
    for section in object.sections.iter().filter(|section| !section.delete) {
        if let SectionData::Relocation(relocations) = &section.data {
            mentioned.extend(relocations.iter().filter_map(|r| r.symbol));
        }
    }
    for symbol in &mut object.symbols {
        symbol.delete = symbol.section.is_none() && symbol.st_shndx == elf::SHN_UNDEF;
    }
    for id in mentioned {
        object.symbols.get_mut(id).delete = false;
    }
}

/// Moves the sections together: a relocatable object's may lie anywhere in the file.
fn close_gaps(object: &mut Builder<'_>) -> Option<()> {
    let mut end = object.file_header_size();
    for section in &mut object.sections {
        if !section.is_alloc() {
            continue;
        }
        section.sh_offset = end.checked_next_multiple_of(section.sh_addralign.max(1))?;
        let len = if section.sh_type == elf::SHT_NOBITS { 0 } else { section.sh_size };
        end = section.sh_offset.checked_add(len)?;
    }
    Some(())
}

/// The object with its groups relabelled as data that nobody reaches.
fn without_groups(data: &[u8]) -> Result<Vec<u8>, String> {
    let header = elf::FileHeader64::<Endianness>::parse(data)
        .map_err(|_| "not a 64-bit ELF object; only those can be rewritten".to_string())?;
    let endian = header.endian().map_err(|e| e.to_string())?;
    let sections =
        header.sections(endian, data).map_err(|e| format!("damaged section table: {e}"))?;
    let table: u64 = header.e_shoff(endian);
    let entry = u64::from(header.e_shentsize(endian));

    let mut out = data.to_vec();
    let mut put = |at: u64, bytes: &[u8]| {
        let at = at as usize;
        let place = out.get_mut(at..at + bytes.len()).ok_or("damaged section table")?;
        place.copy_from_slice(bytes);
        Ok::<(), String>(())
    };
    for (index, section) in sections.enumerate().skip(1) {
        // `sh_type` is the second 32-bit word of a section header, `sh_flags` follows it.
        let at = table + entry * index.0 as u64;
        if section.sh_type(endian) == elf::SHT_GROUP {
            put(at + 4, &endian.write_u32(elf::SHT_PROGBITS.0))?;
        }
        let flags = section.sh_flags(endian).0 & !elf::SHF_GROUP.0;
        put(at + 8, &endian.write_u64(flags))?;
    }
    Ok(out)
}
