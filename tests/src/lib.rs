//! The harness that every integration test shares.
//!
//! A test starts a real program in its own process group, with the library under test preloaded, and
//! judges what comes back. Five rooms:
//!
//! - [`job`]: start a program, wait for it within a time and a memory limit, keep what it wrote. A program
//!   that hangs is a failure that shows the stacks of its threads, never a hang of the test.
//! - [`subject`]: the library under test and the modes it is run in.
//! - [`abi`]: compile one of the C or C++ programs of `tests/abi` and run it in every mode.
//! - [`heap`]: compile one of these programs, or one of a document, with the library of the recoverable heap or of durable states.
//! - [`snippets`]: the blocks of code that a document shows.
//!
//! The environment of a test run:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SPANDREL_TEST_LIB` | library to preload; `none` preloads nothing | `release/libspandrel.so` of the target folder |
//! | `SPANDREL_TEST_BIN` | the command `spandrel` | `release/spandrel` of the target folder |
//! | `SPANDREL_TEST_MODES` | modes to run, separated by `;`: of those that the test asks for, or instead of all | every mode that the test asks for |
//! | `SPANDREL_TEST_SLOW` | factor for every time limit | 1 |
//!
//! With `SPANDREL_TEST_LIB` naming another allocator's library, or `none`, the C programs say whether a
//! failure is the program's or the library's.

pub mod abi;
pub mod heap;
pub mod job;
pub mod snippets;
pub mod subject;

pub use abi::{Program, Source};
pub use job::{Finished, Job};
pub use subject::{Subject, installed, subject};
