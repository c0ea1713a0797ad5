//! A structure of one's own: a stack of notes, in which every change is one word that is published.
//!
//!     cargo run -p spandrel --example own_structure -- notes.heap push TEXT…
//!     cargo run -p spandrel --example own_structure -- notes.heap pop | list
//!
//! A note is durable before the root leads to it, and is freed after the root leads past it. So a failure at any moment
//! leaves the stack with the note or without it, and what nothing leads to is free when the heap is opened.

use spandrel::heap::collections::Str;
use spandrel::heap::{Error, Heap, Options, PPtr, RootType, Trace};

#[derive(Clone, Copy, Trace)]
#[repr(C)]
struct Note {
    below: PPtr<Note>,
    text: Str<40>,
}

const TYPES: &[RootType<'_>] = &[RootType::of::<Note>("top")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(verb)) = (arguments.next(), arguments.next()) else {
        return Err("own_structure HEAP push TEXT… | pop | list".into());
    };
    let (heap, _) = Options::new().size(1 << 20).roots(TYPES).open_or_create(&path)?;
    match verb.as_str() {
        "push" => arguments.enumerate().try_for_each(|(number, text)| {
            push(&heap, &text)?;
            println!("{}", number + 1);
            Ok::<(), Error>(())
        })?,
        "pop" => println!("{}", pop(&heap)?.ok_or("the stack is empty")?),
        _ => {
            let mut at = heap.root::<Note>("top")?.get();
            while let Some(note) = read(&heap, at) {
                println!("{}", note.text);
                at = note.below;
            }
        }
    }
    heap.checkpoint()?;
    heap.close()?;
    Ok(())
}

/// Puts a note on the stack.
fn push(heap: &Heap, words: &str) -> Result<(), Error> {
    let top = heap.root::<Note>("top")?;
    let note = heap.new_object(Note { below: top.get(), text: Str::new(words)? })?; // durable, and not in the stack yet
    top.set(note) // publish
}

/// Takes the last note from the stack.
fn pop(heap: &Heap) -> Result<Option<Str<40>>, Error> {
    let top = heap.root::<Note>("top")?;
    let gone = top.get();
    let Some(note) = read(heap, gone) else { return Ok(None) };
    top.set(note.below)?; // publish
    // SAFETY: nothing leads to it any more.
    unsafe { heap.free_object(gone)? }; // then free
    Ok(Some(note.text))
}

fn read(heap: &Heap, note: PPtr<Note>) -> Option<Note> {
    // SAFETY: the heap has one thread, and only notes lie below this root.
    unsafe { heap.read(note) }
}
