//! Where the programs' executables are; built from their sources where those are
//! at hand.

use super::list::Program;
use crate::failure::Failure;
use crate::places;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a user can do.
const WAY_OUT: &str = "run 'make -C bench-compare programs' in the source tree (it needs cc and \
                       c++), or name the folder with the executables in SPANDREL_PROGRAMS";

/// The folder with all of these programs.
pub fn folder(programs: &[Program]) -> Result<PathBuf, Failure> {
    let Some(folder) = places::programs() else {
        return Err(Failure::refused(format!("the allocation programs were not found: {WAY_OUT}")));
    };
    if let Some(tree) = &folder.tree {
        make(tree)?;
    }
    match programs.iter().find(|program| !folder.path.join(program.file).is_file()) {
        None => Ok(folder.path),
        Some(missing) => Err(Failure::refused(format!(
            "the allocation program '{}' is not built in '{}': {WAY_OUT}",
            missing.file,
            folder.path.display()
        ))),
    }
}

/// Compiles what is missing or older than its source.
fn make(tree: &Path) -> Result<(), Failure> {
    let mut command = Command::new("make");
    command.arg("-s").arg("-C").arg(tree).arg("programs");
    for variable in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(variable);
    }
    let failed = |why: &str| {
        Failure::refused(format!("the allocation programs could not be built: {why}; {WAY_OUT}"))
    };
    let done = command.output().map_err(|why| failed(&format!("make: {why}")))?;
    if done.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
    // The compiler says much before it comes to the point.
    let told = lines.clone().find(|line| line.contains("error")).or_else(|| lines.next());
    Err(failed(told.unwrap_or("make failed")))
}
