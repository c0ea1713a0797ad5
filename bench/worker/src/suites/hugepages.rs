//! Who keeps huge pages whole, and who gives memory back? A heap of small objects
//! is filled, mostly freed, left alone, asked to give back, and filled again with
//! larger ones, and left alone once more; in between its pointers are chased.
//!
//! The suite's own tables are mapped apart and their memory is left out of every
//! figure, so that all that is counted is the allocator's.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Memory, Meter};
use crate::random::Random;
use crate::table::Table;
use serde_json::json;
use std::time::Duration;

/// The smallest object holds the address of the next.
const LEAST: usize = 16;
/// Light traffic while the heap is left alone: so many objects each millisecond.
const TRAFFIC: usize = 20;
const TRAFFIC_SIZE: usize = 256;

pub fn run(mut args: Args) -> Result<Report, String> {
    let bytes = args.size("bytes", "1GiB")?;
    let low = args.size("low", "16B")?.max(LEAST);
    let high = args.size("high", "8KiB")?.max(low);
    let low_again = args.size("low-again", "64B")?.max(LEAST);
    let high_again = args.size("high-again", "32KiB")?.max(low_again);
    let part = args.count("freed-percent", 70)?.min(100);
    let row = args.count("row", 2048)?.max(1);
    let idle_s = args.count("idle-seconds", 10)?;
    let settle_s = args.count("settle-seconds", 20)?;
    let accesses = args.count("accesses", 10_000_000)?;
    let mut random = Random::new(args.count("seed", 1)? as u64);
    let mut report = args.begin()?;

    let mut heap = Heap::new(bytes / LEAST + 1)?;
    let mut note = |phase: &str, heap: &Heap, cpu: u64, access_ns: Option<f64>| {
        let now = meter::memory().beyond(heap.before);
        report.insert(
            phase.into(),
            json!({
                "live": heap.live,
                "resident": now.resident,
                "resident_to_live": now.resident as f64 / heap.live as f64,
                "coverage": now.coverage(),
                "cpu_ns": cpu,
                "access_ns": access_ns,
            }),
        );
    };

    let meter = Meter::start();
    heap.fill(&mut random, bytes, low, high);
    let cpu = meter.stop().cpu_ns;
    let access = heap.chase(&mut random, accesses);
    note("fresh", &heap, cpu, Some(access));

    let meter = Meter::start();
    heap.free_rows(&mut random, part, row);
    let cpu = meter.stop().cpu_ns;
    note("freed", &heap, cpu, None);

    let meter = Meter::start();
    let traffic = idle(Duration::from_secs(idle_s as u64));
    let cpu = meter.stop().cpu_ns.saturating_sub(traffic);
    note("idle", &heap, cpu, None);

    let meter = Meter::start();
    let asked = release();
    let cost = meter.stop();
    note("released", &heap, cost.cpu_ns, None);

    let meter = Meter::start();
    heap.fill(&mut random, bytes, low_again, high_again);
    let cpu = meter.stop().cpu_ns;
    let access = heap.chase(&mut random, accesses);
    note("refilled", &heap, cpu, Some(access));

    let meter = Meter::start();
    let traffic = idle(Duration::from_secs(settle_s as u64));
    let cpu = meter.stop().cpu_ns.saturating_sub(traffic);
    let access = heap.chase(&mut random, accesses);
    note("settled", &heap, cpu, Some(access));

    report.insert("release_wall_ns".into(), cost.wall_ns.into());
    report.insert("asked_by".into(), asked.into());
    Ok(report)
}

/// A live object.
#[derive(Clone, Copy)]
struct Object {
    at: *mut u8,
    size: usize,
}

/// The objects, in the order of their allocation.
struct Heap {
    objects: Table<Object>,
    order: Table<u32>,
    live: usize,
    before: Memory,
}

impl Heap {
    fn new(most: usize) -> Result<Self, String> {
        let objects = Table::new(most)?;
        let order = Table::new(most)?;
        // All of the tables that will ever be touched is left out: nothing yet.
        Ok(Self { objects, order, live: 0, before: meter::memory() })
    }

    /// Allocates until so many bytes are live.
    fn fill(&mut self, random: &mut Random, bytes: usize, low: usize, high: usize) {
        let tables = self.tables();
        while self.live < bytes {
            let size = random.size(low, high);
            // SAFETY: any size may be asked for; the object is written within its size.
            let at = unsafe {
                let at = libc::malloc(size).cast::<u8>();
                assert!(!at.is_null(), "no memory");
                at.write_bytes(size as u8, size);
                at
            };
            self.objects.push(Object { at, size });
            self.live += size;
        }
        self.leave_out(tables);
    }

    /// Frees `percent` of all rows of objects that were allocated one after another.
    fn free_rows(&mut self, random: &mut Random, percent: usize, row: usize) {
        let mut kept = 0;
        for start in (0..self.objects.len()).step_by(row) {
            let goes = random.below(100) < percent;
            for index in start..(start + row).min(self.objects.len()) {
                let object = self.objects[index];
                if goes {
                    self.live -= object.size;
                    // SAFETY: live until here, and on no list from here on.
                    unsafe { libc::free(object.at.cast()) };
                } else {
                    self.objects[kept] = object;
                    kept += 1;
                }
            }
        }
        self.objects.truncate(kept);
    }

    /// Nanoseconds for following one address to the next object, in random order.
    fn chase(&mut self, random: &mut Random, accesses: usize) -> f64 {
        let tables = self.tables();
        let count = self.objects.len();
        self.order.truncate(0);
        (0..count).for_each(|index| self.order.push(index as u32));
        for index in (1..count).rev() {
            self.order.swap(index, random.below(index + 1));
        }
        for index in 0..count {
            let from = self.objects[self.order[index] as usize];
            let to = self.objects[self.order[(index + 1) % count] as usize];
            // SAFETY: every object is live and holds an address.
            unsafe { from.at.cast::<*mut u8>().write_unaligned(to.at) };
        }
        self.leave_out(tables);
        let mut at = self.objects[0].at;
        let start = meter::wall_ns();
        for _ in 0..accesses {
            // SAFETY: every object holds the address of another.
            at = unsafe { at.cast::<*mut u8>().read_unaligned() };
        }
        let taken = meter::wall_ns() - start;
        std::hint::black_box(at);
        taken as f64 / accesses as f64
    }

    fn tables(&self) -> usize {
        self.objects.touched() + self.order.touched()
    }

    /// What the tables have grown by since they were `tables` bytes is not the allocator's.
    fn leave_out(&mut self, tables: usize) {
        let grown = (self.tables() - tables) as u64;
        self.before.resident += grown;
        self.before.anonymous += grown;
    }
}

/// Leaves the heap alone for a while, but for light traffic; the CPU time of this thread.
fn idle(time: Duration) -> u64 {
    let start = meter::thread_ns();
    let end = meter::wall_ns() + time.as_nanos() as u64;
    while meter::wall_ns() < end {
        std::thread::sleep(Duration::from_millis(1));
        for _ in 0..TRAFFIC {
            // SAFETY: the object is freed once, at once.
            unsafe { libc::free(std::hint::black_box(libc::malloc(TRAFFIC_SIZE))) };
        }
    }
    meter::thread_ns() - start
}

/// Asks for all unused memory to be given back, in whichever way the allocator
/// understands; that way's name.
fn release() -> &'static str {
    type Nothing = unsafe extern "C" fn();
    type Flag = unsafe extern "C" fn(bool);
    type Control = unsafe extern "C" fn(
        *const libc::c_char,
        *mut libc::c_void,
        *mut usize,
        *mut libc::c_void,
        usize,
    ) -> i32;
    let find = |name: &std::ffi::CStr| {
        // SAFETY: a NUL-terminated name.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!at.is_null()).then_some(at)
    };
    // SAFETY: each symbol has the type that its library's header declares.
    unsafe {
        if find(c"spandrel_version").is_none() {
            if let Some(collect) = find(c"mi_collect") {
                std::mem::transmute::<*mut libc::c_void, Flag>(collect)(true);
                return "mi_collect";
            }
            if let Some(control) = find(c"mallctl") {
                let control = std::mem::transmute::<*mut libc::c_void, Control>(control);
                let none = std::ptr::null_mut();
                for name in [c"thread.tcache.flush", c"arena.4096.purge"] {
                    control(name.as_ptr(), none, none.cast(), none, 0);
                }
                return "arena.purge";
            }
            for name in [
                c"MallocExtension_ReleaseFreeMemory",
                c"MallocExtension_Internal_ReleaseMemoryToSystem",
            ] {
                if let Some(free) = find(name) {
                    if name.to_bytes().ends_with(b"System") {
                        let to_system = std::mem::transmute::<
                            *mut libc::c_void,
                            unsafe extern "C" fn(usize),
                        >(free);
                        to_system(usize::MAX);
                        return "ReleaseMemoryToSystem";
                    }
                    std::mem::transmute::<*mut libc::c_void, Nothing>(free)();
                    return "ReleaseFreeMemory";
                }
            }
        }
        libc::malloc_trim(0);
    }
    "malloc_trim"
}
