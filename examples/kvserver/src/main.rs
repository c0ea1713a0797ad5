//! The program; see the library for what it is.

/// What clients have sent and not yet committed goes back to the system when they are gone.
#[global_allocator]
static ALLOCATOR: spandrel::Spandrel = spandrel::Spandrel::new();

fn main() -> std::process::ExitCode {
    spandrel_kvserver::main()
}
