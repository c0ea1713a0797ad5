//! Calls of functions that are remembered, as far as they may not have returned.

use super::peek;

/// Calls that are remembered.
const MOST: usize = 64;
/// Of these, the innermost ones that stay where none has returned.
const KEPT: usize = 32;

/// A call of a function that is remembered; see [`Translator::remember`](super::Translator::remember).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct RememberedCall {
    /// Where its return address lies.
    pub slot: usize,
    /// Its return address.
    pub back: usize,
    /// What the function was remembered with.
    pub kind: usize,
    /// The function's first argument.
    pub first: usize,
}

impl RememberedCall {
    /// False: the function has returned, and its return address is not there any more.
    pub fn may_be_under_way(&self) -> bool {
        let mut word = [0; size_of::<usize>()];
        peek(self.slot as u64, &mut word) == word.len() && usize::from_ne_bytes(word) == self.back
    }
}

/// See the head of this file. Translated code adds a call without leaving; what has returned is forgotten when there is no more room, and when the calls are looked at.
#[repr(C)]
pub struct RememberedCalls {
    /// The address of the place of the next one.
    next: usize,
    calls: [RememberedCall; MOST],
}

impl RememberedCalls {
    /// Forgets all calls: another thread may run next, on another stack.
    pub fn clear(&mut self) {
        self.set_count(0);
    }

    fn set_count(&mut self, count: usize) {
        self.next = self.calls.as_ptr() as usize + count * size_of::<RememberedCall>();
    }

    /// Where the last one ends, if there are as many as there is room for.
    pub fn end(&self) -> usize {
        self.calls.as_ptr_range().end as usize
    }

    /// Those that may not have returned, from the outermost to the innermost one.
    pub fn settled(&mut self) -> &[RememberedCall] {
        let bytes = self.next.saturating_sub(self.calls.as_ptr() as usize);
        let calls = self.calls.get_mut(..bytes / size_of::<RememberedCall>()).unwrap_or(&mut []);
        let count = settle(calls);
        self.set_count(count);
        self.calls.get(..count).unwrap_or(&[])
    }

    /// Has room for another one.
    pub fn make_room(&mut self) {
        let count = self.settled().len();
        if let Some(outer) = count.checked_sub(KEPT).filter(|outer| *outer > 0) {
            self.calls.copy_within(outer..count, 0);
            self.set_count(KEPT);
        }
    }
}

/// Moves calls to the front that may not have returned, of those that were made one after the other: their number. A call that was made later has its return address below those of
/// the calls that it is a part of: what has one below, or at the same place, has returned.
fn settle(calls: &mut [RememberedCall]) -> usize {
    let mut count = 0;
    for at in 0..calls.len() {
        let Some(call) = calls.get(at).copied() else { break };
        let known = calls.get(..count).unwrap_or(&[]);
        let live = known.iter().take_while(|known| known.slot > call.slot).count();
        // A function that another one jumps to has the other one's return address: it is a part of it.
        let is_part = known.get(live).is_some_and(|same| {
            (same.slot, same.back) == (call.slot, call.back) && same.kind != call.kind
        });
        if let Some(place) = calls.get_mut(live).filter(|_| !is_part) {
            *place = call;
        }
        count = live + 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn call(slot: usize) -> RememberedCall {
        RememberedCall { slot, back: slot + 1, kind: 2, first: 3 }
    }

    fn none() -> Box<RememberedCalls> {
        let calls = [RememberedCall::default(); MOST];
        let mut none = Box::new(RememberedCalls { next: 0, calls });
        none.clear();
        none
    }

    /// As translated code does it: whether there is room for another one.
    fn add(calls: &mut RememberedCalls, call: RememberedCall) -> bool {
        // SAFETY: there is room for one.
        unsafe { (calls.next as *mut RememberedCall).write(call) };
        calls.next += size_of::<RememberedCall>();
        calls.next != calls.end()
    }

    fn slots(calls: &mut RememberedCalls) -> Vec<usize> {
        calls.settled().iter().map(|call| call.slot).collect()
    }

    #[test]
    fn calls_that_have_returned_are_forgotten() {
        let mut calls = none();
        [900, 800, 700].into_iter().for_each(|slot| assert!(add(&mut calls, call(slot))));
        assert_eq!(slots(&mut calls), [900, 800, 700]);
        add(&mut calls, call(800 - 8));
        assert_eq!(slots(&mut calls), [900, 800, 792]);
        add(&mut calls, call(850));
        assert_eq!(slots(&mut calls), [900, 850]);
        [840, 830, 895, 10, 900].into_iter().for_each(|slot| assert!(add(&mut calls, call(slot))));
        assert_eq!(slots(&mut calls), [900]);
        calls.clear();
        assert_eq!(calls.settled(), []);
    }

    #[test]
    fn a_function_that_is_called_again_has_another_argument() {
        let mut calls = none();
        for first in [5, 6] {
            add(&mut calls, RememberedCall { first, ..call(900) });
        }
        assert_eq!(calls.settled(), [RememberedCall { first: 6, ..call(900) }]);
        // By a jump from the function before.
        add(&mut calls, RememberedCall { kind: 7, first: 8, ..call(900) });
        assert_eq!(calls.settled(), [RememberedCall { first: 6, ..call(900) }]);
        // Called from elsewhere.
        add(&mut calls, RememberedCall { back: 2, kind: 7, ..call(900) });
        assert_eq!(calls.settled(), [RememberedCall { back: 2, kind: 7, ..call(900) }]);
    }

    #[test]
    fn the_innermost_calls_are_there() {
        let mut calls = none();
        let mut slot = 10_000;
        for _ in 0..3 {
            while add(&mut calls, call(slot)) {
                slot -= 8;
            }
            slot -= 8;
            calls.make_room();
        }
        let there = slots(&mut calls);
        assert_eq!(there, (1..=KEPT).rev().map(|at| slot + 8 * at).collect::<Vec<_>>());
    }

    #[test]
    fn a_return_address_that_is_gone_is_no_call() {
        let words = [5usize, 6];
        let of = |at: &usize, back| RememberedCall {
            slot: at as *const usize as usize,
            back,
            ..call(0)
        };
        assert!(of(&words[0], 5).may_be_under_way() && !of(&words[1], 5).may_be_under_way());
        assert!(!call(8).may_be_under_way());
    }
}
