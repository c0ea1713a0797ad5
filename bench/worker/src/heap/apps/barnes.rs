//! N bodies that attract each other. Bodies are objects that stay, with their places, velocities and what pulls at them; cells of the tree
//! are objects of a step. What a step finds out of bodies is stored in sections of sixteen bodies; the tree, which nobody needs
//! after a failure, is not.

use super::{App, Outcome, Place, on_threads};
use crate::heap::sections::Section;
use crate::random::Random;
use std::sync::Barrier;

pub struct Barnes {
    pub bodies: usize,
    pub steps: usize,
}

/// Words of a body: three numbers each, and the mass.
const AT: usize = 0;
const SPEED: usize = 3;
const PULL: usize = 6;
const MASS: usize = 9;
const BODY_WORDS: usize = 10;

/// Words of a cell: what is in its octants, its mass, and where that is on average. A body among the children has its lowest bit set.
const OCTANTS: usize = 8;
const CELL_MASS: usize = 8;
const CELL_AT: usize = 9;
const CELL_WORDS: usize = 12;
const IS_BODY: u64 = 1;

/// A cell that is so many times nearer than it is wide is looked into.
const NEAR: f64 = 0.8;
/// Bodies that are nearer attract each other as if they were so far.
const SOFT: f64 = 0.05;
const TIME: f64 = 0.01;
/// Bodies of a section.
const TOGETHER: usize = 16;

type Vector = [f64; 3];

/// # Safety
/// The object has so many words, and nobody writes to these.
unsafe fn vector(of: Place, first: usize) -> Vector {
    // SAFETY: promised by the caller.
    std::array::from_fn(|axis| unsafe { of.number(first + axis) })
}

/// A cube.
#[derive(Clone, Copy)]
struct Cube {
    middle: Vector,
    half: f64,
}

impl Cube {
    fn octant_of(&self, at: Vector) -> usize {
        (0..3).fold(0, |octant, axis| octant | usize::from(at[axis] >= self.middle[axis]) << axis)
    }

    fn octant(&self, octant: usize) -> Self {
        let half = self.half / 2.0;
        let side = |axis: usize| if octant >> axis & 1 == 1 { half } else { -half };
        Self { middle: std::array::from_fn(|axis| self.middle[axis] + side(axis)), half }
    }
}

/// One thread's tree.
struct Tree<'a, S> {
    section: &'a mut S,
    cells: u64,
}

impl<S: Section> Tree<'_, S> {
    fn cell(&mut self) -> Place {
        self.cells += 1;
        let cell = Place::of(self.section.scratch(CELL_WORDS * 8));
        // SAFETY: a new object of so many words.
        (0..CELL_WORDS).for_each(|word| unsafe { cell.set(word, 0) });
        cell
    }

    /// Puts a body into a cell.
    ///
    /// # Safety
    /// The cell is this thread's, the body's place does not change.
    unsafe fn insert(&mut self, mut cell: Place, mut cube: Cube, body: Place) {
        // SAFETY: promised by the caller.
        unsafe {
            let at = vector(body, AT);
            loop {
                let octant = cube.octant_of(at);
                cube = cube.octant(octant);
                match cell.get(octant) {
                    0 => return cell.set(octant, body.word() | IS_BODY),
                    other if other & IS_BODY != 0 => {
                        let between = self.cell();
                        let other_at = vector(Place((other & !IS_BODY) as *mut u64), AT);
                        // Those that nothing divides share a cell of their own in no order that matters.
                        if other_at == at {
                            between.set(0, other);
                            between.set(1, body.word() | IS_BODY);
                            return cell.set(octant, between.word());
                        }
                        between.set(cube.octant_of(other_at), other);
                        cell.set(octant, between.word());
                        cell = between;
                    }
                    inner => cell = Place(inner as *mut u64),
                }
            }
        }
    }

    /// Frees a cell and all below it.
    ///
    /// # Safety
    /// They are this thread's, and nobody uses them.
    unsafe fn free(&mut self, cell: Place) {
        // SAFETY: promised by the caller.
        unsafe {
            for octant in 0..OCTANTS {
                let child = cell.get(octant);
                if child != 0 && child & IS_BODY == 0 {
                    self.free(Place(child as *mut u64));
                }
            }
            self.section.free_scratch(cell.object());
        }
    }
}

/// The mass of a child, and where it is on average; of cells it is noted there.
///
/// # Safety
/// Nobody else uses the cells, and nobody changes the bodies.
unsafe fn weigh(child: u64) -> (f64, Vector) {
    // SAFETY: promised by the caller.
    unsafe {
        if child & IS_BODY != 0 {
            let body = Place((child & !IS_BODY) as *mut u64);
            return (body.number(MASS), vector(body, AT));
        }
        let cell = Place(child as *mut u64);
        let (mut mass, mut sum) = (0.0, [0.0; 3]);
        for octant in (0..OCTANTS).map(|octant| cell.get(octant)).filter(|child| *child != 0) {
            let (of_child, at) = weigh(octant);
            mass += of_child;
            (0..3).for_each(|axis| sum[axis] += of_child * at[axis]);
        }
        let at = sum.map(|sum| sum / mass);
        cell.set(CELL_MASS, mass.to_bits());
        (0..3).for_each(|axis| cell.set(CELL_AT + axis, at[axis].to_bits()));
        (mass, at)
    }
}

/// Adds what a child of a cell of that width pulls at a body.
///
/// # Safety
/// Nobody changes the cells and the places of bodies.
unsafe fn pull(child: u64, width: f64, body: Place, at: Vector, sum: &mut Vector) {
    // SAFETY: promised by the caller.
    unsafe {
        let (mass, middle) = if child & IS_BODY != 0 {
            if child & !IS_BODY == body.word() {
                return;
            }
            let other = Place((child & !IS_BODY) as *mut u64);
            (other.number(MASS), vector(other, AT))
        } else {
            let cell = Place(child as *mut u64);
            (cell.number(CELL_MASS), vector(cell, CELL_AT))
        };
        let far: Vector = std::array::from_fn(|axis| middle[axis] - at[axis]);
        let square = far.iter().map(|part| part * part).sum::<f64>();
        if child & IS_BODY == 0 && width * width > NEAR * NEAR * square {
            let cell = Place(child as *mut u64);
            for child in (0..OCTANTS).map(|octant| cell.get(octant)).filter(|child| *child != 0) {
                pull(child, width / 2.0, body, at, sum);
            }
            return;
        }
        let square = square + SOFT * SOFT;
        let strength = mass / (square * square.sqrt());
        (0..3).for_each(|axis| sum[axis] += strength * far[axis]);
    }
}

impl Barnes {
    /// The bodies, in a ball.
    fn make(&self, section: &mut impl Section) -> Vec<Place> {
        let mut random = Random::new(7);
        let mut unit = || random.below(1 << 30) as f64 / (1u64 << 29) as f64 - 1.0;
        let mut bodies = Vec::with_capacity(self.bodies);
        while bodies.len() < self.bodies {
            let at: Vector = std::array::from_fn(|_| unit());
            if at.iter().map(|part| part * part).sum::<f64>() > 1.0 {
                continue;
            }
            section.begin();
            let body = Place::of(section.alloc(BODY_WORDS * 8));
            let words = at.into_iter().chain([0.0; 6]).chain([1.0 / self.bodies as f64]);
            // SAFETY: a new object of so many words.
            unsafe {
                words.enumerate().for_each(|(word, number)| body.set(word, number.to_bits()));
                section.made(body.object(), BODY_WORDS * 8);
            }
            section.end();
            bodies.push(body);
        }
        bodies
    }

    /// One thread's part of a step. How many cells it made.
    ///
    /// # Safety
    /// As many threads call it as the barrier waits for, each with another number and the same of all else.
    unsafe fn step(
        &self,
        section: &mut impl Section,
        bodies: &[Place],
        roots: &[std::sync::OnceLock<Place>; OCTANTS],
        [me, threads]: [usize; 2],
        barrier: &Barrier,
    ) -> u64 {
        // SAFETY: promised by the caller; bodies change behind barriers only, each by the thread whose it is.
        unsafe {
            let farthest = |far: f64, body: &Place| {
                vector(*body, AT).iter().fold(far, |far, part| far.max(part.abs()))
            };
            let whole = Cube { middle: [0.0; 3], half: bodies.iter().fold(1.0, farthest) * 1.001 };
            let mine = |octant: &usize| octant % threads == me;
            let mut tree = Tree { section: &mut *section, cells: 0 };
            for octant in (0..OCTANTS).filter(mine) {
                let (root, cube) = (tree.cell(), whole.octant(octant));
                let mut is_any = false;
                for body in
                    bodies.iter().filter(|body| whole.octant_of(vector(**body, AT)) == octant)
                {
                    tree.insert(root, cube, *body);
                    is_any = true;
                }
                if is_any {
                    weigh(root.word());
                    let _ = roots[octant].set(root);
                } else {
                    tree.free(root);
                }
            }
            let cells = tree.cells;
            barrier.wait();
            let part = bodies.len().div_ceil(threads);
            let own = bodies.get(me * part..((me + 1) * part).min(bodies.len())).unwrap_or(&[]);
            for together in own.chunks(TOGETHER) {
                section.begin();
                for body in together {
                    let (at, mut sum) = (vector(*body, AT), [0.0; 3]);
                    for root in roots.iter().filter_map(|root| root.get()) {
                        pull(root.word(), whole.half, *body, at, &mut sum);
                    }
                    section.store(body.0.add(PULL), &sum.map(f64::to_bits));
                }
                section.end();
            }
            barrier.wait();
            for together in own.chunks(TOGETHER) {
                section.begin();
                for body in together {
                    let [at, speed, pull] = [AT, SPEED, PULL].map(|word| vector(*body, word));
                    let speed: Vector = std::array::from_fn(|axis| speed[axis] + TIME * pull[axis]);
                    let at: Vector = std::array::from_fn(|axis| at[axis] + TIME * speed[axis]);
                    let [a, b, c] = at.map(f64::to_bits);
                    let [d, e, f] = speed.map(f64::to_bits);
                    section.store(body.0.add(AT), &[a, b, c, d, e, f]);
                }
                section.end();
            }
            let mut tree = Tree { section, cells: 0 };
            for root in (0..OCTANTS).filter(mine).filter_map(|octant| roots[octant].get()) {
                tree.free(*root);
            }
            barrier.wait();
            cells
        }
    }
}

impl App for Barnes {
    fn run<S: Section>(
        &self,
        threads: usize,
        section: impl Fn() -> Result<S, String> + Sync,
    ) -> Result<Outcome, String> {
        let bodies = self.make(&mut section()?);
        let barrier = Barrier::new(threads);
        let roots: Vec<[std::sync::OnceLock<Place>; OCTANTS]> =
            (0..self.steps).map(|_| Default::default()).collect();
        let cells = on_threads(threads, |me| {
            let mut section = section()?;
            // SAFETY: each thread has a number of its own.
            let step =
                |roots| unsafe { self.step(&mut section, &bodies, roots, [me, threads], &barrier) };
            Ok(roots.iter().map(step).sum())
        })?;
        // SAFETY: all threads have ended.
        let place =
            |body: &Place| unsafe { vector(*body, AT) }.iter().map(|part| part.abs()).sum::<f64>();
        let sum: f64 = bodies.iter().map(place).sum();
        Ok(Outcome { allocations: cells + self.bodies as u64, checksum: format!("{sum:.6}") })
    }
}
