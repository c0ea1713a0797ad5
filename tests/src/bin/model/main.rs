//! A program that does random things with the allocator it runs on and checks every answer against a model.
//!
//! `model [--threads T] [--ops N] [--seed S] [--max-size BYTES] [--generations G]
//! [--least-alignment A] [--no-flips]` runs T threads that
//! allocate, resize, hand over and free N times each, in G generations of threads. `model --script` reads
//! operations from standard input instead (see `script.rs`) and is deterministic.
//!
//! On Spandrel the modes of the process and the scopes of the threads change at random as well. Whatever is
//! wrong is printed with the seed, and the program exits with 1.

mod api;
mod objects;
mod script;

use std::sync::Mutex;

use api::Api;
use objects::{Ledger, Object, Request, Step};
use spandrel_tests::subject::{ALL_MODES, ALLOCATORS, RESTLESS_MODES};

struct Options {
    threads: u64,
    ops: u64,
    seed: u64,
    max_size: usize,
    generations: u64,
    least_alignment: usize,
    flips: bool,
}

/// What the threads share.
struct World {
    ledger: Ledger,
    pool: Mutex<Vec<Object>>,
    api: Option<Api>,
    /// Those to change between.
    modes: Vec<&'static str>,
    options: Options,
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        objects::mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Up to `max`, every power of two about as likely; zero now and then.
    fn size(&mut self, max: usize) -> usize {
        let bits = self.below(u64::from(usize::BITS - max.leading_zeros()) + 1) as u32;
        let top = 1_usize << bits;
        (top / 2 + self.below(top as u64 / 2 + 1) as usize).min(max)
    }
}

fn main() {
    let mut options = Options {
        threads: 4,
        ops: 100_000,
        seed: 1,
        max_size: 1 << 20,
        generations: 4,
        least_alignment: objects::LEAST_ALIGNMENT,
        flips: true,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
            value.unwrap_or_else(|| usage(&name))
        };
        match name.as_str() {
            "--script" => return script::run(),
            "--threads" => options.threads = number(),
            "--ops" => options.ops = number(),
            "--seed" => options.seed = number(),
            "--max-size" => options.max_size = number() as usize,
            "--generations" => options.generations = number().max(1),
            "--least-alignment" => options.least_alignment = number() as usize,
            "--no-flips" => options.flips = false,
            _ => usage(&name),
        }
    }
    let api = Api::find().filter(|_| options.flips);
    let flipping = api.is_some();
    let world = World {
        ledger: Ledger::new(options.least_alignment),
        pool: Mutex::default(),
        api,
        modes: [ALL_MODES, RESTLESS_MODES].concat(),
        options,
    };
    for generation in 0..world.options.generations {
        std::thread::scope(|threads| {
            for thread in 0..world.options.threads {
                let world = &world;
                threads.spawn(move || live(world, generation, thread));
            }
        });
    }
    let rest = std::mem::take(&mut *world.pool.lock().expect("pool"));
    for object in rest {
        world.ledger.free(object);
    }
    let live = world.ledger.live();
    if live != 0 {
        objects::wrong(&format!("{live} objects are left in the model"));
    }
    println!("ok: {} operations, flips: {flipping}", world.ledger.operations());
}

fn usage(about: &str) -> ! {
    eprintln!("model: {about}: see the head of its source for the arguments");
    std::process::exit(2)
}

/// The life of one thread.
fn live(world: &World, generation: u64, thread: u64) {
    let options = &world.options;
    let mut random = Random(objects::mix(options.seed ^ (generation << 32) ^ (thread << 48)));
    let mut mine: Vec<Object> = Vec::new();
    let mut scopes = 0_u32;
    for step in 0..options.ops / options.generations {
        objects::note(Step { seed: options.seed, generation, thread, step });
        flip(world, &mut random, &mut scopes);
        let choice = if mine.len() > 96 { 60 + random.below(40) } else { random.below(100) };
        match choice {
            0..40 => {
                let request = request(world, &mut random);
                mine.push(world.ledger.allocate(request, world.api.as_ref()));
            }
            40..70 if !mine.is_empty() => {
                let at = random.below(mine.len() as u64) as usize;
                let object = mine.swap_remove(at);
                let size = new_size(&mut random, object.size(), options.max_size);
                let backend = random.below(ALLOCATORS.into()) as i32;
                mine.extend(match &world.api {
                    Some(api) if size > 0 && random.below(16) == 0 => {
                        Some(world.ledger.resize_in(object, backend, size, api))
                    }
                    _ => world.ledger.resize(object, size),
                });
            }
            70..90 if !mine.is_empty() => {
                let at = random.below(mine.len() as u64) as usize;
                world.ledger.free(mine.swap_remove(at));
            }
            90..93 if !mine.is_empty() => {
                let at = random.below(mine.len() as u64) as usize;
                world.ledger.use_all_of(&mut mine[at]);
            }
            93..97 if !mine.is_empty() => {
                let at = random.below(mine.len() as u64) as usize;
                let object = mine.swap_remove(at);
                let mut pool = world.pool.lock().expect("pool");
                pool.push(object);
            }
            97..100 => {
                let taken = world.pool.lock().expect("pool").pop();
                mine.extend(taken);
            }
            _ => {}
        }
    }
    // Some of what a thread leaves is freed by others, after it is gone.
    for object in mine {
        if random.below(2) == 0 {
            world.ledger.free(object);
        } else {
            world.pool.lock().expect("pool").push(object);
        }
    }
    if let Some(api) = &world.api {
        // Some threads end inside of a scope: nobody promised to leave it.
        for _ in 0..scopes / 2 {
            api.scope_leave();
        }
    }
}

/// Changes the mode of the process or the scope of this thread now and then.
fn flip(world: &World, random: &mut Random, scopes: &mut u32) {
    let Some(api) = &world.api else { return };
    match random.below(1000) {
        0..3 => api.set_mode(random.pick(&world.modes)),
        3..15 if *scopes < 8 => {
            *scopes += u32::from(api.scope_enter(random.pick(&world.modes)));
        }
        15..25 if *scopes > 0 => {
            api.scope_leave();
            *scopes -= 1;
        }
        _ => {}
    }
}

fn request(world: &World, random: &mut Random) -> Request {
    let size = random.size(world.options.max_size);
    let most = if random.below(50) == 0 { 22 } else { 13 };
    let alignment = 1_usize << random.below(most);
    match random.below(20) {
        0..10 => Request::Malloc { size },
        10..14 => Request::Calloc { size },
        14..16 => Request::PosixMemalign { alignment: alignment.max(8), size },
        16 => Request::AlignedAlloc { alignment, size },
        17 => Request::Memalign { alignment, size },
        _ => Request::In { backend: random.below(ALLOCATORS.into()) as i32, size },
    }
}

/// Sizes as programs ask for them: a step more, double, half, anything; seldom zero.
fn new_size(random: &mut Random, old: usize, max: usize) -> usize {
    let size = match random.below(12) {
        0..4 => old + 1 + random.below(4096) as usize,
        4..6 => old * 2 + 1,
        6..8 => old / 2,
        8 => old,
        9 => old - (random.below(old as u64 + 1) as usize).min(old),
        _ => random.size(max),
    };
    if size > max { random.size(max) } else { size }
}
