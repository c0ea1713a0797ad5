//! Frames of functions that have returned: ordinary code leaves their addresses in its objects, and uses them no more.

use std::mem::MaybeUninit;
use std::prelude::v1::*;
use std::sync::{Mutex, PoisonError};

/// The stack of a thread that has run batches.
#[derive(Clone, Copy, Debug)]
struct Stack {
    low: usize,
    top: usize,
    /// Functions have returned whose frames lie before this address: that of the frame that has called commands, when the thread last looked.
    used: usize,
}

/// The stacks of threads that run batches.
#[derive(Debug, Default)]
pub struct Frames(Mutex<Vec<Stack>>);

/// The calling thread's stack. `None`: it runs on another one.
fn own(used: usize) -> Option<Stack> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call fills the attributes in, which the last one takes back.
    let is_known = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let got = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut bytes);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            got == 0
        }
    };
    let low = low.addr();
    let stack = Stack { low, top: low.saturating_add(bytes), used };
    (is_known && (stack.low..stack.top).contains(&used)).then_some(stack)
}

impl Frames {
    /// Whether an address lies where functions have returned: on the calling thread's stack, before a frame of it that has called them all, or on that of a thread that has looked before.
    pub fn have_left(&self, address: usize, used: usize) -> bool {
        let mut stacks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stacks.iter_mut().find(|stack| (stack.low..stack.top).contains(&used)) {
            Some(stack) => stack.used = used,
            None => {
                if let Some(own) = own(used) {
                    // Of a thread that has ended.
                    stacks.retain(|stack| stack.top <= own.low || own.top <= stack.low);
                    stacks.push(own);
                }
            }
        }
        stacks.iter().any(|stack| (stack.low..stack.used).contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[inline(never)]
    fn returned() -> usize {
        let local = [0u8; 4096];
        (&raw const *black_box(&local)).addr()
    }

    #[test]
    fn frames_of_callers_are_told_from_those_that_have_returned() {
        let frames = Frames::default();
        let live = 0u8;
        let live = (&raw const *black_box(&live)).addr();
        let left = returned();
        assert!(frames.have_left(left, live) && !frames.have_left(live, live));
        // Another thread's, which it has seen itself.
        let theirs = std::thread::scope(|scope| {
            let look = || {
                let frame = 0u8;
                let left = returned();
                (left, frames.have_left(left, (&raw const *black_box(&frame)).addr()))
            };
            scope.spawn(look).join().unwrap()
        });
        assert!(theirs.1 && frames.have_left(theirs.0, live));
        let heap = Box::new(0u8);
        assert!(!frames.have_left((&raw const *heap).addr(), live));
    }
}
