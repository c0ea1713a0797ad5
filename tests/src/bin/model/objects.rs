//! The model: which objects live, where, and what must be in them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::Api;

unsafe extern "C" {
    fn memalign(alignment: usize, size: usize) -> *mut c_void;
    fn malloc_usable_size(object: *mut c_void) -> usize;
}

/// What the C library gives, and so what programs count on.
pub const LEAST_ALIGNMENT: usize = 16;
/// Contents are made and compared in blocks of this size.
const BLOCK: usize = 4096;
static ZEROES: [u8; BLOCK] = [0; BLOCK];

/// One live object.
#[derive(Debug)]
pub struct Object {
    address: usize,
    size: usize,
    id: u64,
}

impl Object {
    /// Bytes that hold the pattern.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// One way to ask for an object.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Malloc {
        size: usize,
    },
    Calloc {
        size: usize,
    },
    PosixMemalign {
        alignment: usize,
        size: usize,
    },
    AlignedAlloc {
        alignment: usize,
        size: usize,
    },
    Memalign {
        alignment: usize,
        size: usize,
    },
    /// From a named backend if the library is there, else as `Malloc`.
    In {
        backend: i32,
        size: usize,
    },
}

/// Where a run is, for the message when something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub seed: u64,
    pub generation: u64,
    pub thread: u64,
    pub step: u64,
}

thread_local! {
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Notes where this thread is.
pub fn note(step: Step) {
    STEP.set(Some(step));
}

/// Says what is wrong and ends the process at once, before another thread can hide the cause.
pub fn wrong(what: &str) -> ! {
    match STEP.get() {
        Some(Step { seed, generation, thread, step }) => eprintln!(
            "model: WRONG: {what}; seed {seed}, generation {generation}, thread {thread}, step {step}"
        ),
        None => eprintln!("model: WRONG: {what}"),
    }
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(1) }
}

/// The finishing function of splitmix64.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that the contents are cut from. A block of an object is a window into it, chosen by the object's
/// id and the block's number, so that no two blocks are alike and whole pages can be compared fast.
struct Noise([u8; 2 * BLOCK]);

impl Noise {
    fn new() -> Self {
        let mut bytes = [0; 2 * BLOCK];
        for (word, chunk) in (1_u64..).zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&mix(word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        }
        Self(bytes)
    }

    fn block(&self, id: u64, number: usize) -> &[u8] {
        let start = mix(id.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ number as u64) as usize % BLOCK;
        &self.0[start..start + BLOCK]
    }

    fn fill(&self, bytes: &mut [u8], id: u64) {
        for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
            block.copy_from_slice(&self.block(id, number)[..block.len()]);
        }
    }

    fn first_difference(&self, bytes: &[u8], id: u64) -> Option<usize> {
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            let expected = &self.block(id, number)[..block.len()];
            if block != expected {
                let inside = block.iter().zip(expected).position(|(a, b)| a != b);
                return inside.map(|i| number * BLOCK + i);
            }
        }
        None
    }
}

/// The live objects of the process.
pub struct Ledger {
    /// Address to length of every live object, as far as it may be used.
    intervals: Mutex<BTreeMap<usize, usize>>,
    next_id: AtomicU64,
    operations: AtomicU64,
    noise: Noise,
    /// Every allocation is at least so aligned.
    least_alignment: usize,
}

impl Ledger {
    /// An empty model of an allocator that aligns everything at least so.
    pub fn new(least_alignment: usize) -> Self {
        Self {
            intervals: Mutex::default(),
            next_id: AtomicU64::new(1),
            operations: AtomicU64::new(0),
            noise: Noise::new(),
            least_alignment,
        }
    }

    /// Number of live objects.
    pub fn live(&self) -> usize {
        self.intervals.lock().expect("intervals").len()
    }

    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Allocates, checks what came, fills it.
    pub fn allocate(&self, request: Request, api: Option<&Api>) -> Object {
        // SAFETY: the C allocation functions accept any size; the alignments are powers of two and at
        // least 8 where posix_memalign asks for it.
        let (pointer, size, alignment, zeroed) = unsafe {
            match request {
                Request::Malloc { size } => (libc::malloc(size), size, 1, false),
                Request::Calloc { size } => {
                    let count = 1 + size % 7;
                    (libc::calloc(count, size / count), size / count * count, 1, true)
                }
                Request::PosixMemalign { alignment, size } => {
                    let mut pointer = std::ptr::null_mut();
                    let status = libc::posix_memalign(&mut pointer, alignment, size);
                    if status != 0 {
                        wrong(&format!("{request:?} = {status}"));
                    }
                    (pointer, size, alignment, false)
                }
                Request::AlignedAlloc { alignment, size } => {
                    let size = size.next_multiple_of(alignment);
                    (libc::aligned_alloc(alignment, size), size, alignment, false)
                }
                Request::Memalign { alignment, size } => {
                    (memalign(alignment, size), size, alignment, false)
                }
                Request::In { backend, size } => {
                    match api.and_then(|api| api.allocate_in(backend, size)) {
                        Some((pointer, alignment, zeroed)) => (pointer, size, alignment, zeroed),
                        None => (libc::malloc(size), size, 1, false),
                    }
                }
            }
        };
        let address = pointer as usize;
        if address == 0 {
            wrong(&format!("{request:?} gave null"));
        }
        if !address.is_multiple_of(alignment.max(self.least_alignment)) {
            wrong(&format!("{request:?} gave {address:#x}, which is not aligned"));
        }
        let mut object = Object { address, size, id: self.next_id.fetch_add(1, Ordering::Relaxed) };
        if zeroed {
            for (number, block) in self.bytes(&mut object).chunks(BLOCK).enumerate() {
                if block != &ZEROES[..block.len()] {
                    let at = number * BLOCK;
                    wrong(&format!("{request:?} gave {address:#x}, not all zero from byte {at}"));
                }
            }
        }
        self.claim(&object);
        self.fill(&mut object);
        object
    }

    /// Resizes and checks that the contents came along. Gives nothing back where a size of zero frees.
    pub fn resize(&self, mut object: Object, size: usize) -> Option<Object> {
        self.verify(&mut object, "before realloc");
        self.release(&object);
        // SAFETY: the object lives and is ours alone.
        let pointer = unsafe { libc::realloc(object.address as *mut c_void, size) };
        if pointer.is_null() {
            if size == 0 {
                return None;
            }
            wrong(&format!("realloc of {object:x?} to {size} gave null"));
        }
        Some(self.resized(object, pointer, size))
    }

    /// Resizes into a backend; the object as it was if that backend is not there.
    pub fn resize_in(&self, mut object: Object, backend: i32, size: usize, api: &Api) -> Object {
        self.verify(&mut object, "before realloc");
        self.release(&object);
        match api.resize_in(backend, object.address as *mut c_void, size) {
            Some(pointer) => self.resized(object, pointer, size),
            None => {
                self.claim(&object);
                object
            }
        }
    }

    fn resized(&self, mut object: Object, pointer: *mut c_void, size: usize) -> Object {
        let address = pointer as usize;
        if !address.is_multiple_of(self.least_alignment) {
            wrong(&format!(
                "realloc of {object:x?} to {size} gave {address:#x}, which is not aligned"
            ));
        }
        let old = std::mem::replace(&mut object.address, address);
        let old_size = object.size;
        object.size = old_size.min(size);
        self.verify(&mut object, &format!("after realloc of {old:#x} from {old_size} to {size}"));
        object.size = size;
        self.claim(&object);
        self.fill(&mut object);
        object
    }

    /// Checks and frees.
    pub fn free(&self, mut object: Object) {
        self.verify(&mut object, "before free");
        self.release(&object);
        // SAFETY: the object lives, is ours alone, and is gone with this call.
        unsafe { libc::free(object.address as *mut c_void) };
    }

    /// Takes the whole usable size into use, as programs may after `malloc_usable_size`.
    pub fn use_all_of(&self, object: &mut Object) {
        self.verify(object, "before use of its slack");
        object.size = usable_size(object);
        self.fill(object);
    }

    /// Fails the program unless the object holds its pattern.
    pub fn verify(&self, object: &mut Object, when: &str) {
        let id = object.id;
        let found = self.noise.first_difference(self.bytes(object), id);
        if let Some(at) = found {
            wrong(&format!("{when}: {object:x?} has a wrong byte at offset {at}"));
        }
    }

    fn fill(&self, object: &mut Object) {
        let id = object.id;
        self.noise.fill(self.bytes(object), id);
    }

    fn bytes<'a>(&self, object: &'a mut Object) -> &'a mut [u8] {
        // SAFETY: the object lives, nobody else has it, and the allocator promised that many bytes.
        unsafe { std::slice::from_raw_parts_mut(object.address as *mut u8, object.size) }
    }

    fn claim(&self, object: &Object) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let usable = usable_size(object);
        if usable < object.size {
            wrong(&format!("{object:x?} has a usable size of {usable}"));
        }
        let length = usable.max(1);
        let mut intervals = self.intervals.lock().expect("intervals");
        let below = intervals.range(..object.address + length).next_back();
        if let Some((&start, &len)) = below
            && start + len > object.address
        {
            wrong(&format!("{object:x?} of {length} bytes overlaps {start:#x} of {len} bytes"));
        }
        intervals.insert(object.address, length);
    }

    fn release(&self, object: &Object) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let removed = self.intervals.lock().expect("intervals").remove(&object.address);
        if removed.is_none() {
            wrong(&format!("{object:x?} is not in the model"));
        }
    }
}

fn usable_size(object: &Object) -> usize {
    // SAFETY: the object lives.
    unsafe { malloc_usable_size(object.address as *mut c_void) }
}
