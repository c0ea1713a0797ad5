//! glibc's functions for strings in each variant that the processor has: translated they write the same bytes as natively, and each byte that they write is noted.
//!
//! glibc chooses a variant when a program is loaded, so the test runs its own program again with other `GLIBC_TUNABLES`. The address of a function tells its variant,
//! and the table of blocks that the variant was translated.
//!
//! `SPANDREL_SOAK`: each size at all alignments.

use super::{Sink, Translator};
use core::ffi::{CStr, c_void};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::prelude::v1::*;
use std::process::Command;
use std::{env, println, thread, vec};

/// Bytes of the memory that the functions write to, and where they write.
const WINDOW: usize = 640 << 10;
const MIDDLE: usize = 16 << 10;
/// Bytes around what is written, which are compared as well.
const MARGIN: usize = 512;
const PAGE: usize = 4096;

/// Notes as they come.
#[derive(Default)]
struct Exact(RefCell<Vec<(usize, usize)>>);

impl Sink for Exact {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().push((at as usize, bytes));
    }
}

/// Each of the functions takes four words at most.
type Function = unsafe extern "C" fn(usize, usize, usize, usize) -> usize;

/// What a function is called with, and the bytes that it writes.
struct Call {
    words: [usize; 4],
    from: usize,
    bytes: usize,
}

impl Call {
    fn at(to: usize, bytes: usize, words: [usize; 4]) -> Self {
        Self { words, from: to, bytes }
    }
}

/// The distance of two ranges that overlap.
fn near(len: usize) -> usize {
    1 + len * 5 % 131
}

/// Characters that a text has before another one is added to it.
fn before(len: usize) -> usize {
    len % 29
}

/// More than a text has, or less.
fn count(len: usize) -> usize {
    if len.is_multiple_of(2) { len + len % 50 } else { len / 2 }
}

/// A call for `len` bytes: the address to write to, and that of the source, a text of that length.
type Plan = fn(usize, usize, usize) -> Call;

/// Functions; whether they return something; calls.
const FUNCTIONS: [(&CStr, bool, Plan); 21] = [
    (c"memcpy", true, |to, from, len| Call::at(to, len, [to, from, len, 0])),
    (c"mempcpy", true, |to, from, len| Call::at(to, len, [to, from, len, 0])),
    (c"memmove", true, |to, from, len| Call::at(to, len, [to, from, len, 0])),
    // To lower addresses, and to higher ones.
    (c"memmove", true, |to, _, len| Call::at(to, len, [to, to + near(len), len, 0])),
    (c"memmove", true, |to, _, len| Call::at(to, len, [to, to - near(len), len, 0])),
    (c"memmove", true, |to, _, len| Call::at(to, len, [to, to - len.min(PAGE), len, 0])),
    (c"memset", true, |to, _, len| Call::at(to, len, [to, len, len, 0])),
    (c"wmemset", true, |to, _, len| {
        Call::at(to & !3, len & !3, [to & !3, 0x1234_5678, len / 4, 0])
    }),
    (c"wmemcpy", true, |to, from, len| {
        Call::at(to & !3, len & !3, [to & !3, from & !3, len / 4, 0])
    }),
    (c"bcopy", false, |to, from, len| Call::at(to, len, [from, to, len, 0])),
    (c"bcopy", false, |to, _, len| Call::at(to, len, [to - near(len), to, len, 0])),
    (c"bzero", false, |to, _, len| Call::at(to, len, [to, len, 0, 0])),
    (c"explicit_bzero", false, |to, _, len| Call::at(to, len, [to, len, 0, 0])),
    (c"strcpy", true, |to, from, len| Call::at(to, len + 1, [to, from, 0, 0])),
    (c"stpcpy", true, |to, from, len| Call::at(to, len + 1, [to, from, 0, 0])),
    (c"strncpy", true, |to, from, len| Call::at(to, count(len), [to, from, count(len), 0])),
    (c"stpncpy", true, |to, from, len| Call::at(to, count(len), [to, from, count(len), 0])),
    (c"strcat", true, |to, from, len| Call::at(to + before(len), len + 1, [to, from, 0, 0])),
    // Where nothing is copied, the end is there already.
    (c"strncat", true, |to, from, len| {
        let copied = len.min(count(len));
        Call::at(to + before(len), copied + copied.min(1), [to, from, count(len), 0])
    }),
    // Up to the end of the text, which is there or is not.
    (c"memccpy", true, |to, from, len| Call::at(to, len + 1, [to, from, 0, len + 40])),
    (c"memccpy", true, |to, from, len| Call::at(to, len, [to, from, 0, len])),
];

/// Sizes beyond those that are all tried: around pages, and what glibc has a path of its own for.
const SIZES: [usize; 28] = [
    383, 384, 385, 511, 512, 513, 767, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191,
    8192, 8193, 16_639, 16_640, 16_641, 20_000, 65_535, 65_536, 65_537, 100_000, 300_000,
];

/// A translator and the memory that it watches.
struct Trial {
    translator: Translator<Exact>,
    window: &'static mut [u8],
    source: Vec<u8>,
    pattern: Vec<u8>,
    expected: Vec<u8>,
    calls: usize,
    /// Calls that have noted more than a vector at once: those of a repeated instruction.
    repeated: usize,
}

impl Trial {
    /// `has_long`: what stores much is native.
    fn new(has_long: bool) -> Self {
        let all = vec![0u8; WINDOW + PAGE].leak();
        let from = all.as_ptr().align_offset(PAGE);
        let window = &mut all[from..from + WINDOW];
        let place = (window.as_ptr() as usize, WINDOW);
        let mut translator = Translator::new(place, &[], Exact::default()).unwrap();
        if !has_long {
            translator.functions.forget_long();
        }
        Self {
            translator,
            window,
            source: (0..WINDOW).map(|at| (at * 7 / 3 % 255 + 1) as u8).collect(),
            pattern: (0..WINDOW).map(|at| (at * 5 / 2 % 255 + 1) as u8).collect(),
            expected: vec![],
            calls: 0,
            repeated: 0,
        }
    }

    /// Compares a call with a native one. `at`: where the bytes go, and where they come from.
    fn compare(&mut self, number: usize, len: usize, at: (usize, usize)) {
        let (name, returns, plan) = FUNCTIONS[number];
        let address = address_of(name);
        // SAFETY: glibc's function takes four words at most.
        let function = unsafe { core::mem::transmute::<usize, Function>(address) };
        let (to, end) = (at.0, at.1 + len);
        let last = core::mem::replace(&mut self.source[end], 0);
        let call =
            plan(self.window.as_ptr() as usize + to, self.source.as_ptr() as usize + at.1, len);
        let around = to.saturating_sub(PAGE + MARGIN)..to + len + MARGIN;
        let begin = |trial: &mut Self| {
            trial.window[around.clone()].copy_from_slice(&trial.pattern[around.clone()]);
            trial.window[to + before(len)] = 0;
        };
        let [a, b, c, d] = call.words;
        // `memccpy` has its byte before the count.
        begin(self);
        // SAFETY: what is read and written lies in the window and in the source.
        let native = unsafe { function(a, b, c, d) };
        self.expected.clear();
        self.expected.extend_from_slice(&self.window[around.clone()]);
        begin(self);
        self.translator.sink().0.borrow_mut().clear();
        // SAFETY: as above.
        let translated = self.translator.call(|| unsafe { function(a, b, c, d) });
        self.source[end] = last;
        let case = (name, len, at);
        assert!(self.window[around.clone()] == self.expected[..], "{case:?}: the bytes differ");
        assert!(!returns || native == translated, "{case:?}: {native:#x} {translated:#x}");
        let mut notes = self.translator.sink().0.borrow_mut();
        notes.sort_unstable();
        let mut noted = call.from;
        for (from, bytes) in notes.iter().filter(|note| note.1 > 0) {
            if *from > noted {
                break;
            }
            noted = noted.max(from + bytes);
        }
        let end = call.from + call.bytes;
        assert!(noted >= end, "{case:?}: {} of {} bytes are noted", noted - call.from, call.bytes);
        self.repeated += usize::from(notes.iter().any(|note| note.1 > 64));
        self.calls += 1;
    }
}

fn address_of(name: &CStr) -> usize {
    // SAFETY: a name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    assert!(address != 0, "{name:?}");
    address
}

/// Where a function lies in its library: the same one has the same place in each process.
fn place_of(address: usize) -> usize {
    // SAFETY: all zero is a record of nothing, which the call fills in.
    let base = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        libc::dladdr(address as *const c_void, &raw mut info);
        info.dli_fbase as usize
    };
    address - base
}

/// A line of a process that [`functions_of_a_variant`] runs in.
const LINE: &str = "variant: ";

#[test]
#[ignore = "is the process of a variant"]
fn functions_of_a_variant() {
    let [mut translated, native] = [false, true].map(run_all);
    for (name, _, _) in FUNCTIONS {
        let address = address_of(name);
        let is_translated = translated.translator.tables.block(address as u64).is_some();
        assert!(is_translated, "{name:?} was not run translated");
        println!("{LINE}{} {}", name.to_str().unwrap(), place_of(address));
    }
    println!("{LINE}repeated {}", translated.repeated);
    println!("{LINE}native {}", native.repeated);
    println!("{LINE}blocks {}", translated.translator.figures().blocks);
    println!("{LINE}calls {}", translated.calls);
}

/// Compares calls of all functions. `has_long`: what stores much is native.
fn run_all(has_long: bool) -> Trial {
    let is_long = env::var("SPANDREL_SOAK").is_ok();
    let mut trial = Trial::new(has_long);
    for number in 0..FUNCTIONS.len() {
        for len in (0..=300).chain(SIZES) {
            let turns = if is_long { 64 } else { 2 };
            for turn in 0..turns {
                // Of all alignments some are tried; one of them crosses a page.
                let to = if turn == 1 { PAGE - len % 70 } else { (len * 7 + turn * 23) % 64 };
                let from = (len * 13 + turn * 37) % 64;
                trial.compare(number, len, (MIDDLE + to, from));
            }
            if is_long && len <= 300 {
                (0..64 * 64).step_by(7).for_each(|at| {
                    trial.compare(number, len, (MIDDLE + at % 64, at / 64));
                });
            }
        }
    }
    trial
}

/// As many bytes as marks an entry of the log, that is none of a number of bytes.
#[test]
fn half_a_gibibyte_is_noted() {
    let bytes = super::STACK as usize;
    let mut all = vec![1u8; 0];
    all.reserve_exact(bytes);
    let at = all.as_mut_ptr();
    let place = (at as usize + bytes / 2, 100);
    let mut translator = Translator::new(place, &[], Exact::default()).unwrap();
    // SAFETY: glibc's function takes four words at most, and the bytes are those of the vector.
    unsafe {
        let function = core::mem::transmute::<usize, Function>(address_of(c"memset"));
        translator.call(|| function(at as usize, 7, bytes, 0));
        assert_eq!((*at, *at.add(bytes - 1)), (7, 7));
    }
    // In one piece or in many: processors differ in what they are given to fill memory with.
    let mut noted = translator.sink().0.borrow().clone();
    noted.sort_unstable();
    let end = noted.iter().fold(
        place.0,
        |end, (from, len)| {
            if *from <= end { end.max(from + len) } else { end }
        },
    );
    assert!(end >= place.0 + place.1, "{noted:?} of {place:?}");
}

/// Settings of glibc 2.26 and later; a name that it does not know changes nothing. Each line differs from one before in one of them, so that all paths of the choice are taken.
const VARIANTS: [&str; 18] = [
    "",
    "glibc.cpu.hwcaps=Prefer_ERMS",
    "glibc.cpu.hwcaps=-ERMS",
    "glibc.cpu.hwcaps=-Prefer_No_AVX512_Probing",
    "glibc.cpu.hwcaps=-Prefer_No_AVX512_Probing,-ERMS",
    "glibc.cpu.hwcaps=-Prefer_No_AVX512_Probing,-AVX512VL",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-ERMS",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-RTM",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-RTM,-ERMS",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-RTM,Prefer_No_VZEROUPPER",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-Fast_Unaligned_Copy",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-SSE4_1,-SSE4_2",
    "glibc.cpu.x86_rep_movsb_threshold=1024:glibc.cpu.x86_rep_stosb_threshold=512",
    "glibc.cpu.x86_non_temporal_threshold=16640",
    "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS:glibc.cpu.x86_non_temporal_threshold=16640",
];
/// Lines of the table above.
const PREFER_ERMS: usize = 1;
const NO_ERMS: usize = 2;
const REPEATED: usize = 15;
const NOT_TEMPORAL: usize = 16;

#[test]
fn each_variant_of_glibc_is_noted() {
    let run = |tunables: &&str| {
        let mut program = Command::new(env::current_exe().unwrap());
        let test = "translate::strings::functions_of_a_variant";
        program.args([test, "--exact", "--ignored", "--nocapture"]);
        program.env("GLIBC_TUNABLES", tunables);
        let output = program.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tunables}: {text}{errors}");
        let pairs = text.lines().filter_map(|line| line.split_once(LINE)?.1.split_once(' '));
        pairs
            .map(|(name, number)| (name.to_string(), number.parse().unwrap()))
            .collect::<BTreeMap<String, usize>>()
    };
    let half = VARIANTS.len() / 2;
    let all: Vec<_> = thread::scope(|scope| {
        let first = scope.spawn(|| VARIANTS[..half].iter().map(run).collect::<Vec<_>>());
        let second = VARIANTS[half..].iter().map(run).collect();
        [first.join().unwrap(), second].concat()
    });
    let names: BTreeSet<&str> = FUNCTIONS.iter().map(|(name, ..)| name.to_str().unwrap()).collect();
    for name in names {
        let places: BTreeSet<usize> = all.iter().map(|variant| variant[name]).collect();
        println!("{name}: {} variants", places.len());
    }
    let has = |feature: bool| usize::from(feature);
    let (erms, avx512vl) = (has_erms(), std::is_x86_feature_detected!("avx512vl"));
    let avx2 = std::is_x86_feature_detected!("avx2");
    let places: BTreeSet<usize> = all.iter().map(|variant| variant["memmove"]).collect();
    // Repeated instructions and vectors of 16 bytes; with wider ones and more of them others.
    let least = 2 + has(erms) + has(avx2) * (1 + has(erms)) + has(avx512vl) * (1 + has(erms));
    assert!(places.len() >= least, "{} variants of {least}", places.len());
    if erms {
        assert!(all[PREFER_ERMS]["repeated"] > all[0]["repeated"]);
        assert!(all[0]["repeated"] > all[NO_ERMS]["repeated"]);
        assert!(all[REPEATED]["repeated"] > all[0]["repeated"]);
    }
    assert!(all[NOT_TEMPORAL]["blocks"] > all[0]["blocks"]);
    // Seven of the calls for each of these sizes, twice.
    let long = 2 * 7 * ((256..301).len() + SIZES.len());
    assert!(all.iter().all(|variant| variant["native"] >= long), "{all:?}");
    assert!(all.iter().all(|variant| variant["calls"] > 10_000));
}

/// Repeated moves of bytes are fast: bit 9 of the features of leaf 7.
fn has_erms() -> bool {
    #[allow(unused_unsafe, reason = "unsafe before Rust 1.94")]
    // SAFETY: each processor of 64 bits has it.
    let more = unsafe { core::arch::x86_64::__cpuid_count(7, 0) };
    more.ebx & (1 << 9) != 0
}
