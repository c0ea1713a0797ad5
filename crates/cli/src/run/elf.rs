//! What an ELF file says about its loader.

use object::elf::{self, FileHeader32, FileHeader64, Machine};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadRef};

/// The little that matters here.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// The machine.
    pub machine: Machine,
    /// 32 or 64.
    pub bits: u8,
    /// Whether it is a shared library or a position-independent program.
    pub shared: bool,
    /// The dynamic linker, if the file asks for one.
    pub interpreter: Option<String>,
}

/// Reads a file's headers; `None` if it is no ELF program.
pub fn read<'data, R: ReadRef<'data>>(data: R) -> Option<Elf> {
    match FileKind::parse(data).ok()? {
        FileKind::Elf32 => headers::<FileHeader32<Endianness>, R>(data, 32),
        FileKind::Elf64 => headers::<FileHeader64<Endianness>, R>(data, 64),
        _ => None,
    }
}

fn headers<'data, H, R>(data: R, bits: u8) -> Option<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let interpreter = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok()?)
        .map(|name| String::from_utf8_lossy(name).into_owned());
    Some(Elf {
        machine: header.e_machine(endian),
        bits,
        shared: header.e_type(endian) == elf::ET_DYN,
        interpreter,
    })
}

/// A machine's usual name.
pub fn machine_name(machine: Machine, bits: u8) -> String {
    match (machine, bits) {
        (elf::EM_X86_64, 32) => "x32".into(),
        (elf::EM_X86_64, _) => "x86-64".into(),
        (elf::EM_386, _) => "32-bit x86".into(),
        (elf::EM_AARCH64, _) => "64-bit ARM".into(),
        (elf::EM_ARM, _) => "32-bit ARM".into(),
        (elf::EM_RISCV, bits) => format!("{bits}-bit RISC-V"),
        (elf::EM_PPC64, _) => "64-bit POWER".into(),
        (elf::EM_S390, _) => "IBM Z".into(),
        (other, bits) => format!("{bits}-bit machine {}", other.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_measure::places::own_machine;

    #[test]
    fn this_program_is_dynamic() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let elf = read(&data[..]).unwrap();
        assert_eq!(elf.machine, own_machine());
        assert_eq!(elf.bits, 64);
        assert!(elf.interpreter.unwrap().contains("ld-linux"));
    }

    #[test]
    fn other_files_are_not_elf() {
        assert_eq!(read(&b""[..]), None);
        assert_eq!(read(&b"#!/bin/sh\n"[..]), None);
        assert_eq!(read(&b"\x7fELF"[..]), None);
        assert_eq!(read(&[0x7f; 4096][..]), None);
        let mut broken = std::fs::read("/proc/self/exe").unwrap();
        broken.truncate(80);
        assert!(read(&broken[..]).is_none_or(|elf| elf.interpreter.is_none()));
    }
}
