//! Translated code does what the program's own does, and all that it changes in a window is noted.

use super::*;
use crate::{Captured, Sizes};
use spandrel_pages::PAGE_BYTES;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::prelude::v1::*;
use std::{format, vec};

const BLOCK: usize = 32;

pub struct Noted(RefCell<Captured>);

impl Sink for Noted {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().note(at as usize, bytes);
    }
}

/// Calls `see` with what was noted since the last call.
fn end(translator: &Translator<Noted>, see: impl FnMut(*const u8, usize)) {
    let _ = translator.sink().0.borrow_mut().drain(see);
}

/// A translator for the writes to a window.
fn translator<T>(window: &[T]) -> Translator<Noted> {
    let captured = Captured::new(Sizes::default()).unwrap();
    let window = (window.as_ptr() as usize, size_of_val(window));
    Translator::new(window, &[], Noted(RefCell::new(captured))).unwrap()
}

/// Memory that begins with a block.
fn window(bytes: usize) -> &'static mut [u8] {
    let all = vec![0u8; bytes + BLOCK].leak();
    let from = all.as_ptr().align_offset(BLOCK);
    &mut all[from..from + bytes]
}

// SAFETY: one thread at a time uses it.
unsafe impl Send for Oracle {}

/// Compares what a translated run has changed with what it has noted.
pub struct Oracle {
    pub translator: Translator<Noted>,
    pub window: &'static mut [u8],
    before: Vec<u8>,
    /// Blocks that were changed, all runs together.
    pub changed: usize,
    /// Blocks that were noted.
    noted: usize,
}

impl Oracle {
    pub fn new(bytes: usize) -> Self {
        let window = window(bytes);
        let translator = translator(window);
        Self { translator, before: window.to_vec(), window, changed: 0, noted: 0 }
    }

    /// The window has these bytes from now on.
    pub fn reset(&mut self, bytes: &[u8]) {
        self.window.copy_from_slice(bytes);
        self.before.copy_from_slice(bytes);
    }

    /// Runs `work` on the window.
    pub fn run<R>(&mut self, mut work: impl FnMut(&mut [u8]) -> R) -> R {
        let (translator, window) = (&mut self.translator, &mut *self.window);
        let result = translator.call(|| work(window));
        let base = window.as_ptr() as usize;
        let mut noted = vec![false; window.len() / BLOCK];
        end(translator, |at, len| {
            let first = (at as usize).saturating_sub(base) / BLOCK;
            let end = (at as usize + len - base).div_ceil(BLOCK).min(noted.len());
            noted[first..end].fill(true);
        });
        let pairs = window.chunks(BLOCK).zip(self.before.chunks_mut(BLOCK));
        for (number, (now, before)) in pairs.enumerate() {
            if now != before {
                assert!(noted[number], "block {number} was changed and is not noted");
                before.copy_from_slice(now);
                self.changed += 1;
            }
        }
        self.noted += noted.iter().filter(|noted| **noted).count();
        result
    }
}

#[test]
fn a_store_is_noted() {
    let words = vec![0u64; 1000].leak();
    let mut translator = translator(words);
    let sum = translator.call(|| {
        words[500] = 7;
        words.iter().sum::<u64>()
    });
    assert_eq!(sum, 7);
    let mut runs = vec![];
    end(&translator, |at, len| runs.push((at as usize, len)));
    let at = &raw const words[500] as usize;
    assert_eq!(runs, [(at & !(BLOCK - 1), BLOCK)]);
}

#[test]
fn collections_behave() {
    let mut translator = translator(&[0u64]);
    let (map, tree, text) = translator.call(|| {
        let mut map = HashMap::new();
        let mut tree = BTreeMap::new();
        let mut text = String::new();
        for number in 0..10_000u64 {
            map.insert(number * 7, number.to_string());
            tree.insert(number.wrapping_mul(0x9e37_79b9), vec![number; 3]);
            text += &format!("{number},");
        }
        (map, tree, text)
    });
    assert_eq!(map.len(), 10_000);
    assert!((0..10_000u64).all(|number| map[&(number * 7)] == number.to_string()));
    assert!((0..10_000u64).all(|n| tree[&n.wrapping_mul(0x9e37_79b9)] == vec![n; 3]));
    assert_eq!(text.split(',').count(), 10_001);
    assert!(translator.figures().blocks > 100);
}

/// All translations are forgotten in the middle of commands, again and again.
#[test]
fn a_full_cache_begins_anew() {
    let mut oracle = Oracle::new(1 << 16);
    oracle.translator.most_blocks = 40;
    for round in [0, 7, 3, 5] {
        let texts = oracle.run(|window| {
            let texts: BTreeMap<u64, String> = (0..50)
                .map(|number| (number * round % 7, format!("{number} of {round}")))
                .collect();
            let mut at = 0;
            for text in texts.values() {
                window[at..at + text.len()].copy_from_slice(text.as_bytes());
                at += text.len();
            }
            texts.len()
        });
        assert_eq!(texts, if round % 7 == 0 { 1 } else { 7 });
    }
    assert!(oracle.translator.flushes > 8, "{}", oracle.translator.flushes);
}

core::arch::global_asm!(
    // Their addresses have the same low 16 bits, by which indirect branches are looked up.
    ".pushsection .text.spandrel_test_alike, \"ax\", @progbits",
    ".balign 65536",
    "spandrel_test_alike_one: lea rax, [rdi + 1]",
    "ret",
    ".balign 65536",
    "spandrel_test_alike_two: lea rax, [rdi + 2]",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn spandrel_test_alike_one(number: usize) -> usize;
    fn spandrel_test_alike_two(number: usize) -> usize;
}

#[test]
fn two_functions_with_alike_addresses_are_both_known() {
    type Function = unsafe extern "C" fn(usize) -> usize;
    let functions: [Function; 2] = [spandrel_test_alike_one, spandrel_test_alike_two];
    let low = functions.map(|function| function as usize % (1 << 16));
    assert_eq!(low[0], low[1]);
    let mut oracle = Oracle::new(BLOCK);
    let mut run = |times: usize| {
        let before = oracle.translator.figures().calls_out;
        let sum = oracle.run(|_| {
            // SAFETY: functions of a number.
            (0..times)
                .fold(0, |sum, turn| unsafe { core::hint::black_box(functions)[turn % 2](sum) })
        });
        (sum, oracle.translator.figures().calls_out - before)
    };
    run(10);
    let (few, many) = (run(10), run(1000));
    assert_eq!((few.0, many.0), (15, 1500));
    assert!(many.1 <= few.1 + 2, "{many:?}, and {few:?}");
}

/// Threads run what others have translated.
#[test]
fn threads_take_turns() {
    let oracle = std::sync::Mutex::new(Oracle::new(1 << 12));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let oracle = &oracle;
            scope.spawn(move || {
                for round in 0..200 {
                    let sum = oracle.lock().unwrap().run(|window| {
                        let numbers: Vec<u64> = (0..thread * 10 + round % 17).collect();
                        window[thread as usize * 64] = window[thread as usize * 64].wrapping_add(1);
                        numbers.iter().sum::<u64>()
                    });
                    let count = thread * 10 + round % 17;
                    assert_eq!(sum, count * count.saturating_sub(1) / 2);
                }
            });
        }
    });
    let window = &oracle.lock().unwrap().window;
    assert!((0..4).all(|thread| window[thread * 64] == 200));
}

/// What a command starts goes on with the program's own code.
#[test]
fn threads_and_processes_begin_natively() {
    let mut translator = translator(&[0u64]);
    for round in 0..3u64 {
        let sum = translator.call(|| {
            let threads: Vec<_> = (0..3u64)
                .map(|number| std::thread::spawn(move || (0..1000 + number).sum::<u64>() + round))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, (0..3u64).map(|n| (999 + n) * (1000 + n) / 2 + round).sum::<u64>());
        let said = translator.call(|| {
            let output = std::process::Command::new("/bin/echo").arg("well").output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        assert_eq!(said, "well\n");
    }
}

#[test]
fn panics_unwind() {
    let mut translator = translator(&[0u64]);
    for _ in 0..3 {
        let caught = translator.call(|| {
            std::panic::catch_unwind(|| {
                let all: Vec<u64> = vec![];
                all[3]
            })
            .is_err()
        });
        assert!(caught);
    }
}

/// glibc has these in a variant for each kind of processor, with vectors, masks, repeated instructions and stores past the caches.
/// A library that is unloaded, and another one that lies there next.
#[test]
fn code_that_takes_the_place_of_other_code_runs() {
    let mut translator = translator(window(BLOCK));
    translator.process.takes_all = true;
    // SAFETY: maps a place of its own, at the address that the kernel has given for the first code.
    let made = |at: *mut libc::c_void, number: i32| unsafe {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let at = libc::mmap(at, PAGE_BYTES, access, kind | fixed, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        // mov eax, number; ret
        let [a, b, c, d] = number.to_le_bytes();
        at.cast::<[u8; 6]>().write([0xb8, a, b, c, d, 0xc3]);
        assert_eq!(libc::mprotect(at, PAGE_BYTES, libc::PROT_READ | libc::PROT_EXEC), 0);
        at
    };
    // SAFETY: the code of a function that returns a number.
    let call = |at: *mut libc::c_void| unsafe {
        core::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(at)()
    };
    let numbers = translator.call(|| {
        let at = made(core::ptr::null_mut(), 1001);
        let first = [call(at), call(at)];
        let at = made(at, 2001);
        [first, [call(at), call(at)]]
    });
    assert_eq!(numbers, [[1001, 1001], [2001, 2001]]);
}

#[test]
fn strings_of_all_lengths_are_noted() {
    let mut oracle = Oracle::new(1 << 16);
    let from: Vec<u8> = (0..1 << 16).map(|at| (at * 7 / 3 + 1) as u8).collect();
    let lengths =
        (0..300).chain([511, 512, 513, 1023, 2047, 2048, 4095, 4096, 8191, 16_383, 30_000]);
    for len in lengths {
        for at in [0, 1, 7, 15, 31, 33, 63] {
            oracle.run(|window| {
                // SAFETY: within the window and the source.
                unsafe {
                    let to = window.as_mut_ptr().add(at);
                    libc::memcpy(to.cast(), from.as_ptr().add(len % 64).cast(), len);
                    libc::memset(to.add(len).cast(), len as i32, len / 3);
                    libc::memmove(to.add(3).cast(), to.cast(), len);
                    libc::memmove(to.cast(), to.add(5).cast(), len);
                }
            });
            oracle.window.fill(0);
            oracle.before.fill(0);
        }
    }
    assert!(oracle.changed > 30_000, "{}", oracle.changed);
}

/// The window's addresses have the same upper bits, and those beside them have others.
#[test]
fn stores_across_an_edge_are_noted() {
    const PAGE: usize = 4096;
    // A page, the window's pages, and a page.
    let edge = |at: usize, pages: usize| {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let from = (at - PAGE) as *mut libc::c_void;
        // SAFETY: nothing is mapped there.
        let mapped = unsafe { libc::mmap(from, (pages + 2) * PAGE, access, flags, -1, 0) };
        assert_eq!(mapped, from);
        // SAFETY: the window's pages of that mapping.
        let window = unsafe { core::slice::from_raw_parts(at as *const u8, pages * PAGE) };
        let mut translator = translator(window);
        for store in [at - 3, at + pages * PAGE - 3] {
            // SAFETY: eight bytes of the mapping.
            translator.call(|| unsafe { (store as *mut u64).write_unaligned(store as u64) });
            let mut runs = vec![];
            end(&translator, |at, len| runs.push((at as usize, len)));
            let part = if store < at { at } else { at + pages * PAGE - BLOCK };
            assert_eq!(runs, [(part, BLOCK)], "{store:#x}");
        }
    };
    // It begins at a multiple of a power of two, and ends at one.
    edge(0x20_0000_0000, 3);
    edge(0x30_0000_0000 - 3 * PAGE, 3);
}

/// A repeated instruction may go downwards.
#[test]
fn repeated_instructions_are_noted_in_both_directions() {
    let mut oracle = Oracle::new(1 << 14);
    for (count, at) in [(0usize, 8000usize), (1, 8001), (7, 9000), (100, 5000), (3000, 8000)] {
        for is_down in [false, true] {
            oracle.run(|window| {
                // SAFETY: all elements lie in the window; the flag is cleared again.
                unsafe {
                    let to = window.as_mut_ptr().add(at);
                    if is_down {
                        core::arch::asm!("std", "rep stosb", "cld", inout("rcx") count => _, inout("rdi") to => _, in("al") (count + at) as u8);
                    } else {
                        core::arch::asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") (count + at) as u8);
                    }
                }
            });
        }
    }
    assert!(oracle.changed > 100, "{}", oracle.changed);
}

#[test]
fn sorting_and_searching_are_noted() {
    let mut oracle = Oracle::new(1 << 18);
    for seed in 0..20u64 {
        oracle.run(|window| {
            // SAFETY: words of the window.
            let (_, words, _) = unsafe { window.align_to_mut::<u64>() };
            let mut number = seed;
            for word in &mut *words {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *word = number;
            }
        });
        let is_sorted = oracle.run(|window| {
            // SAFETY: words of the window.
            let (_, words, _) = unsafe { window.align_to_mut::<u64>() };
            let part = words.len() / 4;
            words[..part].sort();
            words[part..].sort_unstable();
            words[3..].rotate_left(1000);
            words[10_000..].reverse();
            words.copy_within(100..2000, 1500);
            words[..50].is_sorted()
        });
        assert!(is_sorted);
    }
    assert!(oracle.changed > 100_000, "{}", oracle.changed);
}

#[test]
fn text_of_the_c_library_is_noted() {
    let mut oracle = Oracle::new(1 << 16);
    for number in 0..200i64 {
        let len = oracle.run(|window| {
            let to = window.as_mut_ptr();
            // SAFETY: texts within the window.
            unsafe {
                let len = libc::snprintf(
                    to.cast(),
                    1000,
                    c"%ld %5.3f %s %*d".as_ptr(),
                    number,
                    number as f64 / 7.0,
                    c"text".as_ptr(),
                    (number % 50) as i32,
                    3,
                );
                libc::strcpy(to.add(2000 + number as usize).cast(), to.cast());
                libc::strcat(to.add(2000 + number as usize).cast(), to.cast());
                libc::strncpy(to.add(5000).cast(), to.cast(), 300 + number as usize);
                len
            }
        });
        let text =
            format!("{number} {:5.3} text {:>2$}", number as f64 / 7.0, 3, (number % 50) as usize);
        assert_eq!(&oracle.window[..len as usize], text.as_bytes());
    }
}

static HANDLED: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
/// Where the handler stores to, and what a command has set there when it runs.
static PLACE: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

extern "C" fn count_and_store(_: i32) {
    use core::sync::atomic::Ordering::Relaxed;
    // SAFETY: the place is a word of the test's window.
    let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(PLACE.load(Relaxed) as *mut u64) };
    HANDLED.fetch_max(word.load(Relaxed), Relaxed);
    word.store(0, Relaxed);
}

/// A handler neither runs in the midst of a command nor sees what it has changed by half.
#[test]
fn signals_wait_for_the_end_of_a_command() {
    use core::sync::atomic::Ordering::Relaxed;
    let mut oracle = Oracle::new(4096);
    PLACE.store(oracle.window.as_ptr() as u64, Relaxed);
    let mask = || {
        let mut mask = 0u64;
        // SAFETY: asks for the thread's mask.
        unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, 0, 0usize, &raw mut mask, 8usize);
        }
        mask
    };
    // SAFETY: the handler stores to a word.
    unsafe {
        libc::signal(libc::SIGUSR1, count_and_store as *const () as usize);
    }
    let before = mask();
    for held in [false, true] {
        HANDLED.store(0, Relaxed);
        if held {
            oracle.translator.hold();
        }
        let (seen, inside) = oracle.run(|window| {
            window[..8].copy_from_slice(&7u64.to_le_bytes());
            // SAFETY: a signal for this thread.
            unsafe { libc::raise(libc::SIGUSR1) };
            window[..8].copy_from_slice(&9u64.to_le_bytes());
            (HANDLED.load(Relaxed), mask())
        });
        assert_eq!((seen, inside), (0, before));
        assert_eq!(HANDLED.load(Relaxed), if held { 0 } else { 9 });
        drop(oracle.translator.let_go());
        assert_eq!((HANDLED.load(Relaxed), mask()), (9, before));
        let bytes = oracle.window.to_vec();
        oracle.reset(&bytes);
    }
    // What a command blocks stays blocked.
    let block = |how: i32| {
        let mask = 1u64 << (libc::SIGUSR2 - 1);
        // SAFETY: a mask of one signal.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const mask, 0usize, 8usize) }
    };
    assert_eq!(oracle.run(|_| block(libc::SIG_BLOCK)), 0);
    assert_eq!(mask(), before | 1 << (libc::SIGUSR2 - 1));
    assert_eq!(oracle.run(|_| block(libc::SIG_UNBLOCK)), 0);
    assert_eq!(mask(), before);
}

/// A child of a command has the program's mask: what it runs is not deaf to signals.
#[test]
fn children_take_the_signals_of_the_program() {
    let mut translator = translator(&[0u64]);
    let blocked = || {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let before = blocked();
    let found = translator.call(|| {
        // By number: glibc's own fork and spawn set the mask.
        // SAFETY: the child looks at its mask and ends.
        let forked = unsafe {
            match libc::syscall(libc::SYS_fork) {
                0 => libc::_exit(i32::from(blocked() != before)),
                child => {
                    let mut status = -1;
                    libc::waitpid(child as i32, &raw mut status, 0);
                    status
                }
            }
        };
        let spawned = std::process::Command::new("/bin/sh")
            .args(["-c", "grep SigBlk /proc/self/status"])
            .output()
            .unwrap();
        (forked, std::thread::spawn(blocked).join().unwrap(), spawned.stdout)
    });
    let text = format!("SigBlk:\t{before:016x}\n");
    assert_eq!((found.0, found.1, String::from_utf8(found.2).unwrap()), (0, before, text));
    assert_eq!(blocked(), before);
}
