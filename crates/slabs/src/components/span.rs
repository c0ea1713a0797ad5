//! A span: what it gives are its lowest free objects, what it takes back are objects in use of its own.

extern crate std;

use std::vec;
use std::vec::Vec;

use super::Instruction;
use crate::class::CLASS;
use crate::heap;
use crate::map::Page;
use crate::span::{Span, Wrong};

pub(super) fn run(instructions: &[Instruction]) {
    let Some((begins, rest)) = instructions.split_first() else { return };
    let class = begins.class();
    let mut pages = [Page(0)];
    assert_eq!(heap::small_spans(class, &mut pages), 1);
    let (span, of) = (Span::at(pages[0], class), &CLASS[class]);
    span.prepare();
    let start = pages[0].address();
    let mut free = vec![true; of.objects.into()];
    let address = |index: usize| start + of.begin(pages[0].0) + of.offset_of(index);
    for step in rest {
        let used: Vec<usize> = (0..free.len()).filter(|index| !free[*index]).collect();
        if step.kind(2) == 0 {
            let mut into = vec![0; step.count(100)];
            let taken = span.take(&mut into);
            let lowest: Vec<usize> =
                (0..free.len()).filter(|index| free[*index]).take(into.len()).collect();
            let expected: Vec<usize> = lowest.iter().map(|index| address(*index)).collect();
            assert_eq!(into[..taken], expected);
            lowest.into_iter().for_each(|index| free[index] = false);
        } else {
            let chosen = step.choose(&mut used.clone(), 100);
            let mut objects: Vec<usize> = chosen.iter().map(|index| address(*index)).collect();
            // Perhaps one that is none comes after them.
            let expected = match step.what >> 4 {
                0 => {
                    let wrong = address(step.index(free.len()).unwrap_or(0)) + 8;
                    objects.push(wrong);
                    Err((wrong, Wrong::Inside))
                }
                1 if !objects.is_empty() => {
                    objects.push(objects[0]);
                    Err((objects[0], Wrong::FreeAlready))
                }
                2 => {
                    objects.push(start + span.bytes());
                    Ok(chosen.len())
                }
                _ => Ok(chosen.len()),
            };
            for object in &objects[..chosen.len()] {
                assert_eq!(span.wrong(*object), None);
            }
            assert_eq!(span.give(&objects), expected);
            chosen.into_iter().for_each(|index| free[index] = true);
        }
        assert_eq!(span.check(), Ok(()));
        assert_eq!(span.free(), free.iter().filter(|is| **is).count());
        for (index, is_free) in free.iter().enumerate() {
            assert_eq!(span.wrong(address(index)), is_free.then_some(Wrong::FreeAlready));
        }
    }
    span.retire();
    heap::free_spans(&pages, of.pages.into());
}
