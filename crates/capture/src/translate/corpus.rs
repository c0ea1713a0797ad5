//! Code to try the decoder and the rewriter on: that of libraries that are installed, that of this program, and bytes without a pattern.

use std::path::Path;
use std::prelude::v1::*;
use std::{env, fs, vec};

use object::{Object, ObjectSection, SectionKind};

/// Libraries with code of compilers and of assembly for many processors; those are tried that are there.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3", "libz.so.1", "libgmp.so.10"];
const FOLDERS: [&str; 4] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];

/// The executable sections of libraries and of this program, with a name and an address.
pub fn code() -> Vec<(String, u64, Vec<u8>)> {
    let found = LIBRARIES.iter().filter_map(|name| {
        FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
    });
    let own = env::current_exe().unwrap();
    let mut all = vec![];
    for path in found.chain([own]) {
        let bytes = fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.push((name, section.address(), section.data().unwrap().to_vec()));
        }
    }
    all
}

/// Millions of instructions to try: `SPANDREL_SOAK`, or a part of one.
pub fn millions(usual: f64) -> f64 {
    env::var("SPANDREL_SOAK").map_or(usual, |millions| millions.parse().unwrap())
}

/// Numbers without a pattern (xorshift64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Bytes of an instruction that may be there: some prefixes, and bytes of which each is as likely.
    pub fn instruction(&mut self) -> [u8; 16] {
        const PREFIXES: [u8; 16] = [
            0x66, 0xf2, 0xf3, 0x67, 0xf0, 0x48, 0x41, 0x4c, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65,
            0x40, 0x45,
        ];
        // The first byte of a longer code: two bytes, VEX, EVEX, XOP.
        const FIRST: [u8; 8] = [0x0f, 0x0f, 0x0f, 0xc5, 0xc4, 0x62, 0x8f, 0x0f];
        let mut bytes = [0; 16];
        bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&self.next().to_le_bytes()));
        let number = self.next();
        let count = [0, 0, 0, 1, 1, 2, 3, 0][number as usize % 8];
        for (at, byte) in bytes.iter_mut().take(count).enumerate() {
            *byte = PREFIXES[(number >> (8 + at * 4)) as usize % 16];
        }
        if number >> 40 & 3 < 2 {
            bytes[count] = FIRST[(number >> 48) as usize % 8];
            // Maps of codes that there are, and the opcodes' prefixes.
            if bytes[count] == 0x62 || bytes[count] == 0xc4 {
                bytes[count + 1] = bytes[count + 1] & 0xf0 | (1 + (number >> 52) as u8 % 3);
                bytes[count + 2] |= if bytes[count] == 0x62 { 4 } else { 0 };
            }
        }
        bytes
    }
}
