//! A private mapping of a file, for tests that write there.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_os::image::{self, Image, Mapping};
use spandrel_os::vm;

pub const PAGE: usize = 4096;

/// What a mapping had before.
pub type Older = Rc<RefCell<Vec<u8>>>;

/// A private mapping of a file of as many bytes, of which each page begins with its number.
pub struct Mapped<const BYTES: usize>(pub *mut u8);

impl<const BYTES: usize> Mapped<BYTES> {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("spandrel-capture-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = CString::new(std::env::temp_dir().join(name).to_str().unwrap()).unwrap();
        let file = Image::create(&path).unwrap();
        image::remove(&path).unwrap();
        file.grow(0, BYTES as u64).unwrap();
        (0..BYTES / PAGE)
            .for_each(|page| file.write_at(&[page as u8; 99], (page * PAGE) as u64).unwrap());
        let at = vm::reserve(BYTES).unwrap().as_ptr();
        // SAFETY: reserved by the line above.
        unsafe { file.map(at, 0, BYTES, Mapping::Private).unwrap() };
        Self(at)
    }

    /// What it has now.
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: mapped, and this thread is the only one to write it.
        unsafe { std::slice::from_raw_parts(self.0, BYTES) }.to_vec()
    }

    /// What it had at the end of the last batch, which the test brings up to date, and what reads a page of that.
    pub fn older(&self) -> (Older, impl FnMut(*const u8, &mut [u8; PAGE]) + use<BYTES>) {
        let older = Rc::new(RefCell::new(self.bytes()));
        let (copy, base) = (Rc::clone(&older), self.0 as usize);
        let fill = move |page: *const u8, into: &mut [u8; PAGE]| {
            let from = page as usize - base;
            into.copy_from_slice(&copy.borrow()[from..from + PAGE]);
        };
        (older, fill)
    }
}

impl<const BYTES: usize> Drop for Mapped<BYTES> {
    fn drop(&mut self) {
        // SAFETY: the test's own mapping.
        unsafe { vm::release(self.0, BYTES) };
    }
}
