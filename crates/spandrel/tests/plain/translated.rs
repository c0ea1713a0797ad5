//! The same as `main.rs`, with translated commands.

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
