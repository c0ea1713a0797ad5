//! The program; see the library for what it is.

/// The memory of requests is released when their clients are gone.
#[global_allocator]
static ALLOCATOR: spandrel::Spandrel = spandrel::Spandrel::new();

fn main() -> std::process::ExitCode {
    spandrel_kvserver::main()
}
