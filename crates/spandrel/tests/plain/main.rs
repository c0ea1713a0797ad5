//! States of ordinary types, whose pages are compared: models, panics, kills, and what is refused.

mod children;
mod histories;
mod noted;
mod run;
mod signals;
mod states;
mod threads;
mod undone;

use spandrel::durable::Allocator;

#[global_allocator]
static ALLOC: Allocator = Allocator::new();

fn main() {
    run::main();
}
