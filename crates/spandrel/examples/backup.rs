//! Backup and restore: copies a heap while it is open, loses it, puts the copy back and checks it.
//!
//!     cargo run -p spandrel --example backup -- work.heap work.backup
//!
//! A backup is a file like any heap. Of a heap with a log it is the last checkpoint; a mapped heap is lent to the copy at its next
//! checkpoint, so that the program goes on calling it while it is copied.

use spandrel::heap::collections::{Vector, VectorHead};
use spandrel::heap::{Error, Heap, Options, RootType, check, copy};

const TYPES: &[RootType<'_>] = &[RootType::of::<VectorHead<u64>>("numbers")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(backup)) = (arguments.next(), arguments.next()) else {
        return Err("backup HEAP BACKUP".into());
    };
    let options = Options::new().size(1 << 20).roots(TYPES);
    let heap = options.create(&path)?;
    (0..1000).try_for_each(|number| push(&heap, number))?;
    heap.checkpoint()?;

    // Backup: in a thread, as the copy of a mapped heap waits for a checkpoint of this one.
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| options.copy_to(&path, &backup));
        while !copying.is_finished() {
            heap.checkpoint()?;
        }
        copying.join().expect("a copy does not panic")
    })?;
    push(&heap, 1000)?; // not in the backup
    heap.close()?;

    // The heap is lost. Restore: the backup is copied back, and stays.
    std::fs::remove_file(&path)?;
    options.copy_to(&backup, &path)?;

    // Verify: each thing that is damaged is a line.
    let survey = check(&copy(&path)?, TYPES, &mut |finding| eprintln!("{finding:?}"))?;
    let (heap, opened) = options.open(&path)?;
    let len = Vector::<u64>::open(&heap, "numbers")?.len();
    println!("{} damaged, {len} numbers, recovered: {}", survey.damaged, !opened.was_clean);
    heap.close()?;
    Ok(())
}

fn push(heap: &Heap, number: u64) -> Result<(), Error> {
    Vector::<u64>::open(heap, "numbers")?.push(number)
}
