//! The protocol of `combine` as a model: figure 2 of the Mangosteen paper (ATC '24), whose authors checked it in TLA+ for sequentially
//! consistent memory. Here each thread has the store buffer of x86-64, so that the fences matter.
//!
//! Checked in every reachable state, and on every fair path (section 5 of the paper):
//! - `Mutex`: a thread that executes a batch is the only one that executes or reads.
//! - `Once`: a request is executed once before its thread sees that it is done.
//! - `Prog`: a request that is ready is done one day, if each thread takes steps and each store becomes visible one day.
//!
//! Each is shown to fail when a part of the protocol is left out. Sleeping, turns of the readers and exclusive sections are in
//! `loom.rs`, with the code itself.
#![cfg(not(loom))]

use std::collections::HashMap;

use stateright::{Checker, Model, Property};

const THREADS: usize = 3;
/// Stores that a thread may have under way. The third waits.
const BUFFER: usize = 2;

const IDLE: u8 = 0;
const READY: u8 = 1;
const STARTED: u8 = 2;
const DONE: u8 = 3;

/// A part of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The reader may look at the gate before its flag is seen.
    ReaderFence,
    /// The reader looks at the gate before it raises its flag, and not again.
    SecondLook,
    /// The combiner does not wait for readers.
    Scan,
    /// A combiner that finds its own request done executes it all the same.
    OwnCheck,
    /// A reader that finds the gate held waits with its flag up.
    Retreat,
    /// A combiner executes its own request only.
    Combining,
}

/// A thread's place in the program: numbers in brackets are the paper's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Raises the flag \[4\].
    Raise,
    /// Passes the fence and looks at the gate \[5\].
    Look,
    /// Inside; lowers the flag next \[6, 7\].
    Inside,
    /// Lowers the flag \[10\].
    Retreat,
    /// Waits while the gate is held \[11\].
    Pause,
    /// Publishes a request \[13\].
    Publish,
    /// Looks at its own status \[15, 17\].
    Own,
    /// Looks at the gate \[18\].
    Gate,
    /// Takes the gate \[19\].
    Take,
    /// Holds the gate, and looks at its own status once more.
    Holds,
    /// Looks at the status of writer `next`, to go on with the flag of reader `flag` \[22-24\].
    Collect { ready: u8, next: u8, flag: u8 },
    /// Looks at the flag \[25\].
    Scan { ready: u8, flag: u8 },
    /// Alone \[26-29\].
    Execute { ready: u8 },
    /// Ends the requests \[30\].
    Finish { ready: u8, next: u8 },
    /// Leaves the gate \[31\].
    Release,
    /// Waits for a combiner \[16\].
    Wait,
    /// Its request is done \[32\].
    Respond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Gate,
    Flag(usize),
    Status(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    at: [At; THREADS],
    gate: u8,
    flags: [u8; THREADS],
    status: [u8; THREADS],
    /// Stores that only their own thread sees, oldest first.
    buffers: [Vec<(Word, u8)>; THREADS],
    /// How often the present request of a thread has been executed.
    executed: [u8; THREADS],
}

impl State {
    fn memory(&self, word: Word) -> u8 {
        match word {
            Word::Gate => self.gate,
            Word::Flag(thread) => self.flags[thread],
            Word::Status(thread) => self.status[thread],
        }
    }

    /// The oldest store of a thread becomes visible. None: it has no store under way.
    fn flush(&mut self, thread: usize) -> Option<()> {
        let buffer = &mut self.buffers[thread];
        let (word, value) = (!buffer.is_empty()).then(|| buffer.remove(0))?;
        match word {
            Word::Gate => self.gate = value,
            Word::Flag(thread) => self.flags[thread] = value,
            Word::Status(thread) => self.status[thread] = value,
        }
        Some(())
    }

    fn load(&self, thread: usize, word: Word) -> u8 {
        let own = self.buffers[thread].iter().rev().find(|store| store.0 == word);
        own.map_or_else(|| self.memory(word), |store| store.1)
    }

    /// None: the buffer is full.
    fn store(&mut self, thread: usize, word: Word, value: u8) -> Option<()> {
        let buffer = &mut self.buffers[thread];
        (buffer.len() < BUFFER).then(|| buffer.push((word, value)))
    }

    /// A fence, or a locked instruction. None: stores are under way.
    fn fence(&self, thread: usize) -> Option<()> {
        self.buffers[thread].is_empty().then_some(())
    }

    fn is_executing(&self, thread: usize) -> bool {
        matches!(self.at[thread], At::Execute { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The thread takes a step of its program.
    Step(usize),
    /// The oldest store of the thread becomes visible.
    Flush(usize),
}

const ACTIONS: usize = 2 * THREADS;

impl Action {
    fn number(self) -> usize {
        match self {
            Action::Step(thread) => thread,
            Action::Flush(thread) => THREADS + thread,
        }
    }
}

/// Threads below `readers` read again and again; the others write again and again.
struct Figure2 {
    readers: usize,
    without: Without,
}

impl Figure2 {
    fn step(&self, s: &mut State, me: usize) -> Option<()> {
        let bit = |thread: usize| 1_u8 << thread;
        s.at[me] = match s.at[me] {
            At::Raise => {
                if self.without == Without::SecondLook && s.load(me, Word::Gate) != 0 {
                    // A spin: the thread takes a step and stays.
                    return Some(());
                }
                s.store(me, Word::Flag(me), 1)?;
                if self.without == Without::SecondLook { At::Inside } else { At::Look }
            }
            At::Look => {
                if self.without != Without::ReaderFence {
                    s.fence(me)?;
                }
                match s.load(me, Word::Gate) {
                    0 => At::Inside,
                    _ if self.without == Without::Retreat => At::Look,
                    _ => At::Retreat,
                }
            }
            At::Inside => {
                s.store(me, Word::Flag(me), 0)?;
                At::Raise
            }
            At::Retreat => {
                s.store(me, Word::Flag(me), 0)?;
                At::Pause
            }
            At::Pause if s.load(me, Word::Gate) == 0 => At::Raise,
            At::Pause => At::Pause,

            At::Publish => {
                s.store(me, Word::Status(me), READY)?;
                s.executed[me] = 0;
                At::Own
            }
            At::Own => match s.load(me, Word::Status(me)) {
                STARTED => At::Wait,
                DONE => At::Respond,
                _ => At::Gate,
            },
            At::Gate if s.load(me, Word::Gate) == 0 => At::Take,
            At::Gate => At::Own,
            At::Take => {
                s.fence(me)?;
                if s.gate == 0 {
                    s.gate = 1;
                    At::Holds
                } else {
                    At::Own
                }
            }
            At::Holds => {
                let is_done = s.load(me, Word::Status(me)) == DONE;
                if is_done && self.without != Without::OwnCheck {
                    At::Release
                } else {
                    s.store(me, Word::Status(me), STARTED)?;
                    At::Collect { ready: bit(me), next: self.readers as u8, flag: 0 }
                }
            }
            At::Collect { ready, next, flag } => {
                let other = usize::from(next);
                if other == THREADS || self.without == Without::Combining {
                    At::Scan { ready, flag }
                } else if s.load(me, Word::Status(other)) == READY {
                    s.store(me, Word::Status(other), STARTED)?;
                    At::Collect { ready: ready | bit(other), next: next + 1, flag }
                } else {
                    At::Collect { ready, next: next + 1, flag }
                }
            }
            At::Scan { ready, flag } => {
                let reader = usize::from(flag);
                if reader == self.readers || self.without == Without::Scan {
                    At::Execute { ready }
                } else if s.load(me, Word::Flag(reader)) == 0 {
                    At::Scan { ready, flag: flag + 1 }
                } else {
                    At::Collect { ready, next: self.readers as u8, flag }
                }
            }
            At::Execute { ready } => {
                let members = (0..THREADS).filter(|&thread| ready & bit(thread) != 0);
                members.for_each(|thread| s.executed[thread] += 1);
                At::Finish { ready, next: self.readers as u8 }
            }
            At::Finish { ready, next } => {
                let other = usize::from(next);
                if other == THREADS {
                    At::Release
                } else {
                    if ready & bit(other) != 0 {
                        s.store(me, Word::Status(other), DONE)?;
                    }
                    At::Finish { ready, next: next + 1 }
                }
            }
            At::Release => {
                s.store(me, Word::Gate, 0)?;
                At::Own
            }
            At::Wait if s.load(me, Word::Status(me)) == DONE => At::Respond,
            At::Wait => At::Wait,
            At::Respond => At::Publish,
        };
        Some(())
    }

    /// States, and from each state the action and the number of the next one.
    fn graph(&self) -> (Vec<State>, Vec<Vec<(Action, usize)>>) {
        let mut states = self.init_states();
        let mut numbers: HashMap<_, _> = states.iter().cloned().zip(0..).collect();
        let mut edges = Vec::new();
        while let Some(state) = states.get(edges.len()) {
            let steps = self.next_steps(state).into_iter();
            let out = steps.map(|(action, next)| {
                let number = *numbers.entry(next.clone()).or_insert(states.len());
                if number == states.len() {
                    states.push(next);
                }
                (action, number)
            });
            edges.push(out.collect());
        }
        (states, edges)
    }

    /// Whether `Prog` holds: on no fair path does the request of a thread stay undone for good.
    fn progresses(&self) -> bool {
        let (states, edges) = self.graph();
        (self.readers..THREADS).all(|writer| {
            let is_pending =
                |&number: &usize| matches!(states[number].status[writer], READY | STARTED);
            components(&edges, is_pending).iter().all(|component| !is_fair(&edges, component))
        })
    }
}

impl Model for Figure2 {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let at = std::array::from_fn(
            |thread| if thread < self.readers { At::Raise } else { At::Publish },
        );
        vec![State {
            at,
            gate: 0,
            flags: [0; THREADS],
            status: [IDLE; THREADS],
            buffers: Default::default(),
            executed: [0; THREADS],
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions
            .extend((0..THREADS).flat_map(|thread| [Action::Step(thread), Action::Flush(thread)]));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step(thread) => self.step(&mut state, thread)?,
            Action::Flush(thread) => state.flush(thread)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("Mutex", |_, s: &State| {
                let inside =
                    |thread: &usize| s.is_executing(*thread) || s.at[*thread] == At::Inside;
                !(0..THREADS).any(|t| s.is_executing(t)) || (0..THREADS).filter(inside).count() == 1
            }),
            Property::always("Once", |_, s: &State| {
                (0..THREADS)
                    .all(|t| s.executed[t] <= 1 && (s.at[t] != At::Respond || s.executed[t] == 1))
            }),
        ]
    }

    // Stop at a batch that is executed twice, whose count would grow for ever.
    fn within_boundary(&self, state: &State) -> bool {
        state.executed.iter().all(|&times| times <= 2)
    }
}

/// The strongly connected components of the states that pass `is_in` (Tarjan, without recursion).
fn components(edges: &[Vec<(Action, usize)>], is_in: impl Fn(&usize) -> bool) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let (mut order, mut low) = (vec![NEW; edges.len()], vec![NEW; edges.len()]);
    let mut is_open = vec![false; edges.len()];
    let (mut stack, mut path, mut found, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for root in (0..edges.len()).filter(&is_in) {
        if order[root] != NEW {
            continue;
        }
        path.push((root, 0));
        while let Some((state, edge)) = path.last_mut() {
            let state = *state;
            if *edge == 0 {
                (order[state], low[state]) = (count, count);
                count += 1;
                stack.push(state);
                is_open[state] = true;
            }
            let next = edges[state].get(*edge).map(|(_, next)| *next);
            *edge += 1;
            match next {
                Some(next) if !is_in(&next) => {}
                Some(next) if order[next] == NEW => path.push((next, 0)),
                Some(next) if is_open[next] => low[state] = low[state].min(order[next]),
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some(&(before, _)) = path.last() {
                        low[before] = low[before].min(low[state]);
                    }
                    if low[state] == order[state] {
                        let at = stack.iter().rposition(|&other| other == state).unwrap();
                        let component = stack.split_off(at);
                        component.iter().for_each(|&member| is_open[member] = false);
                        found.push(component);
                    }
                }
            }
        }
    }
    found
}

/// Whether a path may stay in the component for good although each action that stays possible is taken one day.
fn is_fair(edges: &[Vec<(Action, usize)>], component: &[usize]) -> bool {
    let members: std::collections::HashSet<_> = component.iter().copied().collect();
    let mut taken = [false; ACTIONS];
    let mut impossible = [false; ACTIONS];
    for &state in component {
        let mut possible = [false; ACTIONS];
        for (action, next) in &edges[state] {
            possible[action.number()] = true;
            taken[action.number()] |= members.contains(next);
        }
        (0..ACTIONS).for_each(|action| impossible[action] |= !possible[action]);
    }
    taken.contains(&true) && (0..ACTIONS).all(|action| taken[action] || impossible[action])
}

fn check(readers: usize, without: Without) -> impl Checker<Figure2> {
    Figure2 { readers, without }.checker().spawn_bfs().join()
}

#[test]
fn two_writers_and_a_reader_are_apart_and_served_once() {
    check(1, Without::Nothing).assert_properties();
}

#[test]
fn a_writer_and_two_readers_are_apart() {
    check(2, Without::Nothing).assert_properties();
}

#[test]
fn three_writers_are_apart_and_served_once() {
    check(0, Without::Nothing).assert_properties();
}

#[test]
fn mutual_exclusion_needs_the_fence_the_second_look_and_the_scan() {
    for without in [Without::ReaderFence, Without::SecondLook, Without::Scan] {
        check(1, without).assert_any_discovery("Mutex");
    }
}

#[test]
fn a_combiner_that_does_not_look_at_its_own_request_executes_it_twice() {
    check(1, Without::OwnCheck).assert_any_discovery("Once");
}

#[test]
fn each_ready_request_is_done_one_day() {
    for readers in [0, 1, 2] {
        assert!(Figure2 { readers, without: Without::Nothing }.progresses());
    }
}

#[test]
fn progress_needs_the_retreat_and_the_combining() {
    for without in [Without::Retreat, Without::Combining] {
        assert!(!Figure2 { readers: 1, without }.progresses(), "{without:?}");
    }
}
