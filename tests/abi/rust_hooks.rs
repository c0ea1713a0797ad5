//! What the hooks of the stable compiler for stores note: bytes, of two functions that store.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOTED: AtomicUsize = AtomicUsize::new(0);

macro_rules! hooks {
    ($($name:ident $bytes:literal),+) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *const u8) {
            NOTED.fetch_add($bytes, Relaxed);
        }
    )+};
}

hooks!(
    __sanitizer_cov_store1 1,
    __sanitizer_cov_store2 2,
    __sanitizer_cov_store4 4,
    __sanitizer_cov_store8 8,
    __sanitizer_cov_store16 16
);

#[derive(Clone, Copy)]
struct Large {
    _words: [u64; 12],
}

#[inline(never)]
fn store(to: &mut u64, word: u64) {
    *to = word;
}

#[inline(never)]
fn copy(to: &mut Large, from: &Large) {
    *to = *from;
}

fn noted(work: impl FnOnce()) -> usize {
    let before = NOTED.load(Relaxed);
    work();
    NOTED.load(Relaxed) - before
}

fn main() {
    let (mut word, mut large) = (0, Large { _words: [0; 12] });
    let number = black_box(7);
    let other = Large { _words: [black_box(3); 12] };
    let of_word = noted(|| store(&mut word, number));
    let of_large = noted(|| copy(&mut large, &other));
    black_box((word, large));
    println!("a word of 8 bytes: {of_word}");
    println!("a structure of {} bytes: {of_large}", size_of::<Large>());
}
