//! The compiler's hooks note the durable stores of the thread whose batch is open, and nothing else.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;
use spandrel_capture::hooks::{atomics, copies, functions, wrote};
use spandrel_capture::{Capture, CompilerHooks, Refused, Region, Regions, Sizes};

const PAGE: usize = 4096;
const SEQ_CST: c_int = 5;

unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memset(to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void;
}

/// One batch is open in a process at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[repr(C, align(4096))]
struct Pages([u8; 8 * PAGE]);

/// Memory of which pages 1 to 6 are durable.
fn durable() -> (Box<Pages>, Regions) {
    let mut pages = Box::new(Pages([0; 8 * PAGE]));
    let regions = Regions::of(pages.0.as_mut_ptr().wrapping_add(PAGE), 6 * PAGE).unwrap();
    (pages, regions)
}

fn end(hooks: &mut CompilerHooks, base: usize) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    hooks.end(&mut |at, bytes| runs.push((at as usize - base, bytes)));
    runs
}

fn hooks(regions: &Regions) -> CompilerHooks {
    CompilerHooks::new(Sizes { block_bytes: 16, ..Sizes::default() }, regions).unwrap()
}

#[test]
fn each_function_notes_its_bytes() {
    let _alone = alone();
    let (pages, regions) = durable();
    let base = pages.0.as_ptr() as usize;
    let mut hooks = hooks(&regions);
    type Function = fn(*const c_void);
    let all: [(Function, usize); 10] = [
        (functions::write1, 1),
        (functions::write2, 2),
        (functions::write4, 4),
        (functions::write8, 8),
        (functions::write16, 16),
        (functions::unaligned_write1, 1),
        (functions::unaligned_write2, 2),
        (functions::unaligned_write4, 4),
        (functions::unaligned_write8, 8),
        (functions::unaligned_write16, 16),
    ];
    for (function, bytes) in all {
        // Up to the edge of a block, and one byte beyond.
        for (at, runs) in
            [(PAGE + 64 - bytes, (PAGE + 48, 16)), (PAGE + 65 - bytes, (PAGE + 48, 32))]
        {
            hooks.begin();
            function((base + at) as *const c_void);
            let expected = if bytes == 1 && at == PAGE + 64 { (PAGE + 64, 16) } else { runs };
            assert_eq!(end(&mut hooks, base), [expected], "{bytes} bytes at {at}");
        }
    }
    hooks.begin();
    functions::write_range((base + 2 * PAGE) as *const c_void, 1000);
    functions::vptr_update((base + 4 * PAGE) as *const _, std::ptr::null());
    functions::write_range(base as *const c_void, PAGE + 1);
    functions::write_range((base + 7 * PAGE - 1) as *const c_void, 1 << 40);
    let runs = [(PAGE, 16), (2 * PAGE, 1008), (4 * PAGE, 16), (7 * PAGE - 16, 16)];
    assert_eq!(end(&mut hooks, base), runs);
}

#[test]
fn stores_outside_of_the_batch_are_not_noted() {
    let _alone = alone();
    let (pages, regions) = durable();
    let base = pages.0.as_ptr() as usize;
    let mut hooks = hooks(&regions);
    wrote(base + PAGE, 8);
    hooks.begin();
    // Another thread, transient memory, the stack, no bytes.
    std::thread::spawn(move || wrote(base + 2 * PAGE, 8)).join().unwrap();
    let local = 0;
    [base, base + 7 * PAGE, &raw const local as usize].into_iter().for_each(|at| wrote(at, 8));
    wrote(base + 3 * PAGE, 0);
    assert_eq!(end(&mut hooks, base), []);
    wrote(base + PAGE, 8);
    hooks.set_stack(Region { start: base + 2 * PAGE, end: base + 3 * PAGE });
    for runs in [&[(PAGE, 16), (3 * PAGE, 16)][..], &[(PAGE, 16), (2 * PAGE, 16), (3 * PAGE, 16)]] {
        // The stack is that of one batch.
        hooks.begin();
        [PAGE, 2 * PAGE, 3 * PAGE].into_iter().for_each(|at| wrote(base + at, 8));
        assert_eq!(end(&mut hooks, base), runs);
    }
    // A note between batches counts for the next one.
    hooks.note((base + 5 * PAGE) as *const u8, 8);
    hooks.begin();
    hooks.begin();
    hooks.note((base + 6 * PAGE) as *const u8, 8);
    assert_eq!(end(&mut hooks, base), [(5 * PAGE, 16), (6 * PAGE, 16)]);
    assert_eq!(hooks.statistics().whole, 0);
}

#[test]
fn regions_change_within_a_batch() {
    let _alone = alone();
    let (pages, regions) = durable();
    let base = pages.0.as_ptr() as usize;
    let mut hooks = hooks(&regions);
    hooks.begin();
    wrote(base, 8);
    let mut more = hooks.regions().clone();
    more.add(base as *const u8, PAGE).unwrap();
    hooks.set_regions(&more).unwrap();
    wrote(base + 64, 8);
    assert_eq!(hooks.regions().iter().count(), 1);
    assert_eq!(end(&mut hooks, base), [(64, 16)]);
}

#[test]
fn a_second_batch_is_every_byte() {
    let _alone = alone();
    let (pages, regions) = durable();
    let base = pages.0.as_ptr() as usize;
    let (mut first, mut second) = (hooks(&regions), hooks(&regions));
    first.begin();
    second.begin();
    wrote(base + PAGE, 8);
    assert_eq!(end(&mut second, base), [(PAGE, 6 * PAGE)]);
    assert_eq!(end(&mut first, base), [(PAGE, 16)]);
    second.begin();
    wrote(base + PAGE, 8);
    assert_eq!(end(&mut second, base), [(PAGE, 16)]);
    assert_eq!((first.statistics().whole, second.statistics().whole), (0, 1));
}

#[test]
fn another_thread_cannot_end_a_batch() {
    let _alone = alone();
    let (pages, regions) = durable();
    let base = pages.0.as_ptr() as usize;
    let (mut moved, mut dropped) = (hooks(&regions), hooks(&regions));
    moved.begin();
    wrote(base + PAGE, 8);
    let elsewhere = move || {
        assert_eq!(moved.set_regions(&Regions::new()), Err(Refused::Thread));
        moved.note(base as *const u8, 8);
        assert_eq!(end(&mut moved, base), [(PAGE, 6 * PAGE)]);
        moved
    };
    let mut moved = std::thread::spawn(elsewhere).join().unwrap();
    assert_eq!(end(&mut moved, base), [(PAGE, 16)]);
    // The state of an open batch stays mapped where it is dropped by another thread; no later batch notes then. A child has that end.
    // SAFETY: the child calls functions of this crate, and ends.
    let child = unsafe { fork() };
    if child == 0 {
        dropped.begin();
        let is_fine = std::thread::scope(|scope| {
            scope.spawn(move || drop(dropped));
            true
        });
        wrote(base + PAGE, 8);
        moved.begin();
        let is_whole = end(&mut moved, base) == [(PAGE, 6 * PAGE)];
        // SAFETY: ends the child at once.
        unsafe { _exit(c_int::from(!(is_fine && is_whole))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of this test.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

macro_rules! check_width {
    ($module:ident, $int:ty, $pages:ident, $hooks:ident) => {{
        use atomics::$module as of;
        let base = $pages.0.as_mut_ptr() as usize;
        let at = (base + PAGE + 64) as *mut $int;
        let (a, b): ($int, $int) = (0x35, <$int>::MAX - 9);
        // SAFETY: within the pages, aligned, and of this thread alone.
        unsafe {
            let mut step = |expected: $int, stores: bool, run: &dyn Fn() -> $int, before: $int| {
                $hooks.begin();
                assert_eq!(run(), before);
                let runs = end(&mut $hooks, base);
                assert_eq!(runs, [(PAGE + 64, 16)][usize::from(!stores)..]);
                assert_eq!(of::load(at, SEQ_CST), expected);
                assert_eq!(at.read(), expected);
            };
            let store = |value, order| {
                of::store(at, value, order);
                0
            };
            step(a, true, &|| store(a, 0), 0);
            step(b, true, &|| store(b, SEQ_CST), 0);
            step(b, false, &|| of::load(at, 0), b);
            step(a, true, &|| of::exchange(at, a, 0), b);
            step(a.wrapping_add(b), true, &|| of::fetch_add(at, b, 0), a);
            step(a, true, &|| of::fetch_sub(at, b, 0), a.wrapping_add(b));
            step(a & 0x17, true, &|| of::fetch_and(at, 0x17, 0), a);
            step(a & 0x17 | 0x42, true, &|| of::fetch_or(at, 0x42, 0), a & 0x17);
            step(a & 0x17 | 0x42, true, &|| of::fetch_xor(at, 0, 0), a & 0x17 | 0x42);
            step(!((a & 0x17 | 0x42) & 3), true, &|| of::fetch_nand(at, 3, 0), a & 0x17 | 0x42);
            step(a, true, &|| store(a, 3), 0);
            step(a, false, &|| of::compare_exchange_val(at, b, 7, 0, 0), a);
            step(b, true, &|| of::compare_exchange_val(at, a, b, 0, 0), a);
            let exchange = |mut expected: $int, value| {
                let is_done = of::compare_exchange(at, &raw mut expected, value, 0, 0);
                if is_done { 1 } else { expected }
            };
            step(b, false, &|| exchange(a, 7), b);
            step(a, true, &|| exchange(b, a), 1);
            step(0, true, &|| store(0, 0), 0);
        }
    }};
}

#[test]
fn atomics_do_what_they_note() {
    let _alone = alone();
    let (mut pages, regions) = durable();
    let mut hooks = hooks(&regions);
    check_width!(of8, u8, pages, hooks);
    check_width!(of16, u16, pages, hooks);
    check_width!(of32, u32, pages, hooks);
    check_width!(of64, u64, pages, hooks);
    check_width!(of128, u128, pages, hooks);
    atomics::thread_fence(SEQ_CST);
    atomics::signal_fence(SEQ_CST);
}

#[test]
fn atomics_of_several_threads_lose_no_update() {
    let (mut pages, _) = durable();
    let at = pages.0.as_mut_ptr() as usize;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    // SAFETY: both are aligned, apart from each other, and accessed by these functions alone meanwhile.
                    unsafe {
                        atomics::of64::fetch_add((at + 64) as *mut u64, 1, 0);
                        atomics::of128::fetch_add(at as *mut u128, u128::from(u64::MAX), 0);
                    }
                }
            });
        }
    });
    // SAFETY: as above.
    let sums = unsafe {
        (
            atomics::of64::load((at + 64) as *const u64, 0),
            atomics::of128::load(at as *const u128, 0),
        )
    };
    assert_eq!(sums, (40_000, u128::from(u64::MAX) * 40_000));
}

#[derive(Clone, Debug)]
enum Op {
    Store(usize, u64),
    Fill(usize, usize, u8),
    Copy(usize, usize, usize),
    Move(usize, usize, usize),
    Add(usize, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, len) = (|| 0_usize..7 * PAGE, || prop_oneof![9 => 0_usize..100, 1 => 0..PAGE]);
    prop_oneof![
        (at(), any::<u64>()).prop_map(|(at, value)| Op::Store(at, value)),
        (at(), len(), any::<u8>()).prop_map(|(at, len, value)| Op::Fill(at, len, value)),
        (at(), 0_usize..PAGE / 2, 0_usize..PAGE / 2)
            .prop_map(|(to, from, len)| Op::Copy(to, from, len)),
        (at(), at(), len()).prop_map(|(to, from, len)| Op::Move(to, from, len)),
        (at(), any::<u32>()).prop_map(|(at, value)| Op::Add(at & !3, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn each_changed_durable_byte_is_named(batches in prop::collection::vec(prop::collection::vec(op(), 0..40), 1..4)) {
        let _alone = alone();
        let (mut pages, regions) = durable();
        let mut hooks = hooks(&regions);
        let base = pages.0.as_mut_ptr();
        let at = |at: usize| base.wrapping_add(at).cast::<c_void>();
        for batch in &batches {
            // SAFETY: the test's own memory, which only these raw pointers access.
            let before = unsafe { std::slice::from_raw_parts(base, 8 * PAGE) }.to_vec();
            hooks.begin();
            for op in batch {
                // SAFETY: all ranges end within the eighth page.
                unsafe {
                    match *op {
                        Op::Store(to, value) => {
                            functions::unaligned_write8(at(to));
                            at(to).cast::<u64>().write_unaligned(value);
                        }
                        Op::Fill(to, len, value) => drop(copies::memset(memset, at(to), value.into(), len)),
                        Op::Copy(to, from, len) => {
                            let from = if to < 4 * PAGE { 6 * PAGE + from } else { from };
                            copies::memcpy(memcpy, at(to), at(from), len);
                        }
                        Op::Move(to, from, len) => drop(copies::memmove(memmove, at(to), at(from), len)),
                        Op::Add(to, value) => drop(atomics::of32::fetch_add(at(to).cast(), value, 0)),
                    }
                }
            }
            let mut named = vec![false; 8 * PAGE];
            for (from, len) in end(&mut hooks, base as usize) {
                named[from..from + len].fill(true);
            }
            // SAFETY: as above.
            let now = unsafe { std::slice::from_raw_parts(base, 8 * PAGE) };
            for (byte, is_named) in named.iter().enumerate() {
                let is_durable = (PAGE..7 * PAGE).contains(&byte);
                prop_assert!(*is_named || before[byte] == now[byte] || !is_durable);
                prop_assert!(is_durable || !is_named);
            }
        }
    }
}
