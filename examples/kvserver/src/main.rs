//! The program; see the library for what it is.

fn main() -> std::process::ExitCode {
    spandrel_kvserver::main()
}
