//! Requests from a file, in its order, by one thread. Each object is written to on every page, and
//! its number, kept at its beginning, is looked at when it is resized or freed.
//!
//! The file is mapped and its format is the harness's (`bench/harness/src/micro/replay.rs`). Nothing
//! here allocates but the requests.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Meter};
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;

const MAGIC: u64 = u64::from_ne_bytes(*b"SPNDSTEP");
const ALLOCATE: u8 = 1;
const FREE: u8 = 2;
const RESIZE: u8 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    magic: u64,
    objects: u64,
    steps: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Step {
    id: u32,
    kind: u8,
    zeroed: u8,
    align_log2: u8,
    nothing: u8,
    size: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Object {
    address: *mut u8,
    size: usize,
}

pub fn run(mut args: Args) -> Result<Report, String> {
    let path = args.text("steps", "").to_string();
    let mut report = args.begin()?;
    let file = File::open(&path).map_err(|why| format!("--steps {path}: {why}"))?;
    let len = file.metadata().map_err(|why| format!("--steps {path}: {why}"))?.len() as usize;
    let bytes = map(len, Some(&file))?;
    let header = (len >= size_of::<Header>()).then(|| {
        // SAFETY: the mapping has so many bytes, and any bytes are a header.
        unsafe { bytes.cast::<Header>().read() }
    });
    let Some(Header { magic: MAGIC, objects, steps }) = header else {
        return Err(format!("--steps {path}: these are no steps"));
    };
    let (count, objects) = (steps as usize, objects as usize);
    if count.checked_mul(size_of::<Step>()).and_then(|n| n.checked_add(size_of::<Header>()))
        != Some(len)
    {
        return Err(format!("--steps {path}: it is cut off"));
    }
    // SAFETY: so many follow the header, as was checked; any bytes are a step.
    let steps =
        unsafe { std::slice::from_raw_parts(bytes.add(size_of::<Header>()).cast::<Step>(), count) };
    let table = map((objects * size_of::<Object>()).max(1), None)?.cast::<Object>();
    // SAFETY: the mapping is that long and zero, which is an object without an address.
    let living = unsafe { std::slice::from_raw_parts_mut(table, objects) };

    // Both mappings are resident before anything is measured.
    let before = meter::rss();
    let sum: u64 = steps.iter().step_by(256).map(|step| step.size).fold(0, u64::wrapping_add);
    std::hint::black_box(sum);
    living.iter_mut().step_by(256).for_each(|object| object.size = 0);
    let own = meter::rss().saturating_sub(before);
    let meter = Meter::start();
    let (mut live, mut peak) = (0usize, 0usize);
    for step in steps {
        let object = living.get_mut(step.id as usize).ok_or("an object beyond the last")?;
        live -= object.size;
        match step.kind {
            ALLOCATE => *object = allocate(step)?,
            FREE => {
                check(object, step.id)?;
                // SAFETY: it came from the same library and is not used any more.
                unsafe { libc::free(object.address.cast()) };
                *object = Object { address: std::ptr::null_mut(), size: 0 };
            }
            RESIZE => resize(object, step)?,
            kind => return Err(format!("a step of kind {kind}")),
        }
        live += object.size;
        peak = peak.max(live);
    }
    let cost = meter.stop();
    cost.record(&mut report);
    report.insert("rss".into(), meter::rss().saturating_sub(own).into());
    report.insert("live_peak".into(), peak.into());
    let resident = meter::peak_rss().saturating_sub(own);
    report.insert("peak_rss".into(), resident.into());
    if peak > 0 {
        report.insert("rss_per_byte".into(), (resident as f64 / peak as f64).into());
    }
    Ok(report)
}

/// Memory that the measured allocator has nothing to do with: a file's bytes, or zeroes.
fn map(len: usize, file: Option<&File>) -> Result<*mut u8, String> {
    let (access, flags, fd) = match file {
        Some(file) => (libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd()),
        None => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
    match at {
        libc::MAP_FAILED => Err(format!("no memory for {len} bytes of steps")),
        at => Ok(at.cast()),
    }
}

fn allocate(step: &Step) -> Result<Object, String> {
    let size = step.size as usize;
    // SAFETY: plain requests; the place for an aligned one's address is valid.
    let address: *mut c_void = unsafe {
        match (step.align_log2, step.zeroed) {
            (0, 0) => libc::malloc(size),
            (0, _) => libc::calloc(1, size),
            (log2, _) => {
                let mut place = std::ptr::null_mut();
                let align = (1usize << log2).max(size_of::<usize>());
                match libc::posix_memalign(&mut place, align, size) {
                    0 => place,
                    _ => std::ptr::null_mut(),
                }
            }
        }
    };
    if address.is_null() && size > 0 {
        return Err(format!("no memory for {size} bytes"));
    }
    let object = Object { address: address.cast(), size };
    touch(&object, 0, step.id);
    Ok(object)
}

fn resize(object: &mut Object, step: &Step) -> Result<(), String> {
    check(object, step.id)?;
    let (old, size) = (object.size, step.size as usize);
    // SAFETY: the object came from the same library.
    let address = unsafe { libc::realloc(object.address.cast(), size) };
    if address.is_null() && size > 0 {
        return Err(format!("no memory for {size} bytes"));
    }
    *object = Object { address: address.cast(), size };
    if old >= size_of::<u32>() {
        check(object, step.id)?;
    }
    touch(object, old, step.id);
    Ok(())
}

/// Writes to each page from `from` on, and the number to the beginning.
fn touch(object: &Object, from: usize, id: u32) {
    const PAGE: usize = 4096;
    for at in (from.next_multiple_of(PAGE)..object.size).step_by(PAGE) {
        // SAFETY: within the object.
        unsafe { object.address.add(at).write_volatile(id as u8) };
    }
    if object.size >= size_of::<u32>() {
        // SAFETY: as above.
        unsafe { object.address.cast::<u32>().write_volatile(id) };
    }
}

fn check(object: &Object, id: u32) -> Result<(), String> {
    if object.size < size_of::<u32>() {
        return Ok(());
    }
    // SAFETY: within the object, which `touch` has written to.
    match unsafe { object.address.cast::<u32>().read_volatile() } {
        found if found == id => Ok(()),
        _ => Err(format!("the contents of an object of {} bytes are lost", object.size)),
    }
}
