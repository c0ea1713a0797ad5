//! Adapters that come with Spandrel.

use std::path::Path;

use crate::{Adapter, Wrong};

/// An adapter that comes with Spandrel.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

/// All of them.
pub const BUILTIN: &[Builtin] =
    &[Builtin { name: "redis", text: include_str!("../adapters/redis.toml") }];

/// The adapter for a program, by the name of its file; `None`: there is none.
///
/// # Errors
/// An adapter is wrong.
pub fn for_program(program: &Path) -> Result<Option<(Builtin, Adapter)>, Wrong> {
    let name = program.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    for builtin in BUILTIN {
        let adapter = Adapter::parse(builtin.text)?;
        if adapter.program.executables.iter().any(|known| *known == name) {
            return Ok(Some((*builtin, adapter)));
        }
    }
    Ok(None)
}
