//! Calls of functions that are remembered, as far as they may not have returned.

use super::peek;

/// Calls that are remembered: the innermost ones.
const MOST: usize = 16;

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

/// See the head of this file.
#[repr(C)]
pub struct RememberedCalls {
    count: usize,
    /// From the outermost to the innermost one.
    calls: [RememberedCall; MOST],
}

impl RememberedCalls {
    /// Forgets all calls: another thread may run next, on another stack.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// All of them.
    pub fn all(&self) -> &[RememberedCall] {
        self.calls.get(..self.count).unwrap_or(&[])
    }

    /// Remembers a call that has just begun. Calls that have returned are forgotten: a later one has its return address where theirs was, or above.
    pub fn add(&mut self, call: RememberedCall) {
        let known = self.all();
        // A function that another one jumps to has the other one's return address: it is a part of it.
        if known.last().is_some_and(|last| (last.slot, last.back) == (call.slot, call.back)) {
            return;
        }
        let live = known.iter().take_while(|known| known.slot > call.slot).count();
        let count = if live < MOST {
            live
        } else {
            self.calls.rotate_left(1);
            MOST - 1
        };
        if let Some(place) = self.calls.get_mut(count) {
            *place = call;
        }
        self.count = count + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(slot: usize) -> RememberedCall {
        RememberedCall { slot, back: slot + 1, kind: 2, first: 3 }
    }

    fn slots(calls: &RememberedCalls) -> std::vec::Vec<usize> {
        calls.all().iter().map(|call| call.slot).collect()
    }

    #[test]
    fn calls_that_have_returned_are_forgotten() {
        let mut calls = RememberedCalls { count: 0, calls: [RememberedCall::default(); MOST] };
        [900, 800, 700].into_iter().for_each(|slot| calls.add(call(slot)));
        assert_eq!(slots(&calls), [900, 800, 700]);
        calls.add(call(800 - 8));
        assert_eq!(slots(&calls), [900, 800, 792]);
        // By a jump from the function before.
        calls.add(RememberedCall { kind: 7, ..call(792) });
        assert_eq!((slots(&calls).len(), calls.all()[2].kind), (3, 2));
        calls.add(call(850));
        assert_eq!(slots(&calls), [900, 850]);
        calls.clear();
        assert_eq!(calls.all(), []);
    }

    #[test]
    fn the_innermost_calls_are_there() {
        let mut calls = RememberedCalls { count: 0, calls: [RememberedCall::default(); MOST] };
        for slot in (1..=MOST + 3).rev() {
            calls.add(call(slot));
        }
        assert_eq!(slots(&calls), (1..=MOST).rev().collect::<std::vec::Vec<_>>());
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
