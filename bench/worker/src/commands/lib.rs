//! Commands whose stores are captured in several ways, and the clock that times them: for the part `capture` of the suite `durable`.
//!
//! Two programs have them. `spandrel-bench-worker` captures without a log, with the C library's allocator. `spandrel-bench-plain` has the allocator of plain states,
//! and captures with a log. Each measures what the same commands take natively.

mod args;
pub mod clock;
mod kinds;

pub use args::Args;
pub use kinds::{Command, Copies, Note, Nothing, Table, Text, Tree, Unnoted};

/// Bytes of the sources of copies, of which a copy takes a part.
const SOURCE_BYTES: usize = 100_000 + 64 * 64;

/// What copies are made from: bytes that differ from one place to the next.
pub fn source() -> Vec<u8> {
    let mut random = clock::Random::new(1);
    (0..SOURCE_BYTES).map(|_| random.next() as u8).collect()
}

/// Runs a command once for each number: the commands of a batch.
#[inline(never)]
pub fn batch<C: Command, N: Note>(command: &mut C, numbers: &[u64], from: &[u8], note: &mut N) {
    for number in numbers {
        command.run(*number, from, note);
    }
}

/// What is done with a kind of commands.
pub trait Visit {
    /// The result.
    type Out;

    /// Does it.
    fn visit<C: Command + Send + Sync + 'static>(self) -> Self::Out;
}

/// Names of the kinds.
pub const NAMES: [&str; 6] = ["table", "tree", "copy-4k", "copy-100k", "nothing", "text"];

/// Does something with the kind of that name.
///
/// # Errors
/// There is none.
pub fn visit<V: Visit>(name: &str, visit: V) -> Result<V::Out, String> {
    Ok(match name {
        "table" => visit.visit::<Table>(),
        "tree" => visit.visit::<Tree>(),
        "copy-4k" => visit.visit::<Copies<4096>>(),
        "copy-100k" => visit.visit::<Copies<100_000>>(),
        "nothing" => visit.visit::<Nothing>(),
        "text" => visit.visit::<Text>(),
        _ => return Err(format!("--command {name}: there are {}", NAMES.join(", "))),
    })
}
