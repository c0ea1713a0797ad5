//! A function that hears of all writes, in a process of its own: the last one that was named holds for all tests of it.

use std::sync::Mutex;

use spandrel_capture::hooks::{atomics, functions, listen};

static HEARD: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn hear(at: usize, bytes: usize) {
    HEARD.lock().unwrap().push((at, bytes));
}

#[test]
fn a_listener_hears_of_stores_of_every_thread_while_no_batch_is_open() {
    let mut word = 3u32;
    let at = &raw mut word;
    functions::write8(at.cast());
    listen(hear);
    functions::write4(at.cast());
    let address = at as usize;
    std::thread::spawn(move || functions::write_range(address as *const _, 100)).join().unwrap();
    // SAFETY: the variable is this test's.
    let before = unsafe { atomics::of32::fetch_add(at, 4, 5) };
    assert_eq!((before, word), (3, 7));
    assert_eq!(*HEARD.lock().unwrap(), [(address, 4), (address, 100), (address, 4)]);
}
