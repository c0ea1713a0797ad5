//! A symmetric matrix into a lower triangular one and its transpose, by tiles of 4 × 4. A tile is an object, and each step of the
//! computation makes a new one, as programs for concurrent collections do; a table in the heap has the one that counts.
//!
//! A section makes a tile, has the table lead to it, and frees the one before.

use super::{App, Outcome, Place, on_threads};
use crate::heap::sections::Section;
use std::sync::Barrier;

pub struct Cholesky {
    pub order: usize,
}

const SIDE: usize = 4;
const TILE_BYTES: usize = SIDE * SIDE * 8;
type Tile = [[f64; SIDE]; SIDE];

/// The table of tiles.
#[derive(Clone, Copy)]
struct Table {
    at: Place,
    tiles: usize,
}

impl Table {
    fn index(self, row: usize, column: usize) -> usize {
        row * self.tiles + column
    }

    /// # Safety
    /// There is a tile, and nobody replaces it meanwhile.
    unsafe fn get(self, row: usize, column: usize) -> Tile {
        // SAFETY: promised by the caller.
        unsafe { (self.at.get(self.index(row, column)) as *const Tile).read() }
    }

    /// # Safety
    /// Nobody else uses the tile.
    unsafe fn put(self, section: &mut impl Section, row: usize, column: usize, tile: &Tile) {
        section.begin();
        let object = section.alloc(TILE_BYTES);
        // SAFETY: a new object of that size; promised by the caller.
        unsafe {
            object.cast().write(*tile);
            section.made(object, TILE_BYTES);
            let place = self.at.0.add(self.index(row, column));
            let before = Place::from_word(place.read());
            section.store(place, &[object.as_ptr() as u64]);
            if let Some(before) = before {
                section.free(before.object());
            }
        }
        section.end();
    }
}

impl Cholesky {
    /// An element of the matrix, which is positive definite.
    fn element(&self, row: usize, column: usize) -> f64 {
        let far = row.abs_diff(column);
        1.0 / (1 + far) as f64 + if far == 0 { self.order as f64 } else { 0.0 }
    }

    /// One thread's part of all.
    ///
    /// # Safety
    /// As many threads call it as the barrier waits for, each with another number.
    unsafe fn part(
        &self,
        table: Table,
        section: &mut impl Section,
        [me, threads]: [usize; 2],
        barrier: &Barrier,
    ) -> u64 {
        let mut made = 0;
        let is_mine = |row: &usize| row % threads == me;
        for row in (0..table.tiles).filter(is_mine) {
            for column in 0..=row {
                let [top, left] = [row * SIDE, column * SIDE];
                let tile = std::array::from_fn(|r| {
                    std::array::from_fn(|c| self.element(top + r, left + c))
                });
                // SAFETY: rows are one thread's each.
                unsafe { table.put(section, row, column, &tile) };
                made += 1;
            }
        }
        barrier.wait();
        for step in 0..table.tiles {
            if is_mine(&step) {
                // SAFETY: the others wait.
                unsafe { table.put(section, step, step, &factor(table.get(step, step))) };
                made += 1;
            }
            barrier.wait();
            // SAFETY: nobody replaces it in this step any more.
            let diagonal = unsafe { table.get(step, step) };
            for row in (step + 1..table.tiles).filter(is_mine) {
                // SAFETY: rows are one thread's each.
                unsafe {
                    let tile = solve(&diagonal, table.get(row, step));
                    table.put(section, row, step, &tile);
                }
                made += 1;
            }
            barrier.wait();
            for row in (step + 1..table.tiles).filter(is_mine) {
                for column in step + 1..=row {
                    // SAFETY: what is read is of the step's column, which nobody replaces now.
                    unsafe {
                        let [one, other] = [table.get(row, step), table.get(column, step)];
                        let tile = less(table.get(row, column), &one, &other);
                        table.put(section, row, column, &tile);
                    }
                    made += 1;
                }
            }
            barrier.wait();
        }
        made
    }

    /// How far off an element is.
    fn error(&self, table: Table, row: usize, column: usize) -> f64 {
        // SAFETY: all threads have ended.
        let of = |row: usize, at: usize| unsafe {
            table.get(row / SIDE, at / SIDE)[row % SIDE][at % SIDE]
        };
        let sum: f64 = (0..=column).map(|at| of(row, at) * of(column, at)).sum();
        (sum - self.element(row, column)).abs()
    }
}

/// The lower triangle of a tile on the diagonal.
fn factor(mut tile: Tile) -> Tile {
    for column in 0..SIDE {
        for before in 0..column {
            for row in column..SIDE {
                tile[row][column] -= tile[row][before] * tile[column][before];
            }
        }
        let root = tile[column][column].sqrt();
        (column..SIDE).for_each(|row| tile[row][column] /= root);
        (0..column).for_each(|row| tile[row][column] = 0.0);
    }
    tile
}

/// A tile below one on the diagonal.
fn solve(diagonal: &Tile, mut tile: Tile) -> Tile {
    for row in &mut tile {
        for column in 0..SIDE {
            for before in 0..column {
                row[column] -= row[before] * diagonal[column][before];
            }
            row[column] /= diagonal[column][column];
        }
    }
    tile
}

/// A tile less the product of one and the other's transpose.
fn less(mut tile: Tile, one: &Tile, other: &Tile) -> Tile {
    for (row, of_one) in tile.iter_mut().zip(one) {
        for (place, of_other) in row.iter_mut().zip(other) {
            *place -= of_one.iter().zip(of_other).map(|(a, b)| a * b).sum::<f64>();
        }
    }
    tile
}

impl App for Cholesky {
    fn run<S: Section>(
        &self,
        threads: usize,
        section: impl Fn() -> Result<S, String> + Sync,
    ) -> Result<Outcome, String> {
        let tiles = self.order.div_ceil(SIDE);
        let order = tiles * SIDE;
        let whole = Self { order };
        let mut first = section()?;
        first.begin();
        let words = tiles * tiles;
        let table = Table { at: Place::of(first.alloc(words * 8)), tiles };
        // SAFETY: a new object, of so many words.
        unsafe {
            (0..words).for_each(|word| table.at.set(word, 0));
            first.made(table.at.object(), words * 8);
        }
        first.end();
        let barrier = Barrier::new(threads);
        // Before anybody waits at the barrier for one that has none.
        let sections = (0..threads).map(|_| section()).collect::<Result<Vec<_>, _>>();
        drop(sections?);
        let allocations = on_threads(threads, |me| {
            let mut section = section()?;
            // SAFETY: each has a number of its own.
            Ok(unsafe { whole.part(table, &mut section, [me, threads], &barrier) })
        })?;
        let worst = (0..order)
            .step_by((order / 40).max(1))
            .flat_map(|row| (0..=row).step_by((order / 40).max(1)).map(move |column| (row, column)))
            .map(|(row, column)| whole.error(table, row, column))
            .fold(0.0, f64::max);
        if worst > 1e-8 * order as f64 {
            return Err(format!("cholesky: an element is off by {worst:e}"));
        }
        let of_tile = |tile: usize| {
            // SAFETY: all threads have ended.
            let tile = unsafe { table.get(tile, tile) };
            (0..SIDE).map(move |at| tile[at][at]).sum::<f64>()
        };
        let trace: f64 = (0..tiles).map(of_tile).sum();
        Ok(Outcome { allocations: allocations + 1, checksum: format!("{trace:.9e}") })
    }
}
