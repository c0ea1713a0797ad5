//! Where the programs' executables are; built from their sources where those are
//! at hand.

use super::list::Program;
use spandrel_console::Failure;
use spandrel_console::shutdown::output;
use spandrel_measure::places;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// What a user can do.
const WAY_OUT: &str = "run 'make -C bench/peers programs' in the source tree (it needs cc and \
                       c++), or name the folder with the executables in SPANDREL_PROGRAMS";

/// A folder of executables, and the tree that they are built in, if it is at hand.
struct Programs {
    path: PathBuf,
    tree: Option<PathBuf>,
}

impl Programs {
    /// The allocation programs built by `make -C bench/peers programs`.
    fn find() -> Option<Self> {
        if let Some(named) = std::env::var_os("SPANDREL_PROGRAMS") {
            return Some(Self { path: named.into(), tree: None });
        }
        let tree = places::source_tree()?.join("bench");
        let path = tree.join("peers/lib/programs");
        let tree = tree.join("programs").is_dir().then_some(tree);
        (tree.is_some() || path.is_dir()).then_some(Self { path, tree })
    }
}

/// The folder with all of these programs.
pub fn folder(programs: &[Program]) -> Result<PathBuf, Failure> {
    match Programs::find() {
        Some(found) => built(programs, found, "make"),
        None => Err(Failure::refused(format!("the allocation programs were not found: {WAY_OUT}"))),
    }
}

fn built(programs: &[Program], folder: Programs, make: &str) -> Result<PathBuf, Failure> {
    if let Some(tree) = &folder.tree {
        let all_are_new = || programs.iter().all(|program| is_new(program, &folder.path, tree));
        build(tree, make, all_are_new)?;
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

/// Compiles what is missing or older than its source. Without make, that nothing is will do.
fn build(tree: &Path, make: &str, all_are_new: impl Fn() -> bool) -> Result<(), Failure> {
    let mut command = Command::new(make);
    command.arg("-s").arg("-C").arg(tree.join("peers")).arg("programs");
    for variable in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(variable);
    }
    let failed = |why: &str| {
        Failure::refused(format!("the allocation programs could not be built: {why}; {WAY_OUT}"))
    };
    let done = match output(&mut command) {
        Err(why) if why.kind() == ErrorKind::NotFound && all_are_new() => return Ok(()),
        outcome => outcome.map_err(|why| failed(&format!("make: {why}")))?,
    };
    if done.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
    // The compiler says much before it comes to the point.
    let told = lines.clone().find(|line| line.contains("error")).or_else(|| lines.next());
    Err(failed(told.unwrap_or("make failed")))
}

/// Whether a program is there and no older than its source and the headers, as make has it.
fn is_new(program: &Program, folder: &Path, tree: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    let Some(built) = written(&folder.join(program.file)) else { return false };
    let Ok(sources) = tree.join("programs").read_dir() else { return false };
    let is_part = |path: &PathBuf| {
        let is_own = path.file_stem().is_some_and(|name| name == program.file);
        is_own || path.extension().is_some_and(|extension| extension == "h")
    };
    let newest = |newest: Option<SystemTime>, path: PathBuf| newest.max(written(&path));
    let parts = sources.flatten().map(|entry| entry.path()).filter(is_part);
    parts.fold(None, newest).is_none_or(|source| source <= built)
}

#[cfg(test)]
mod tests {
    use super::super::list;
    use super::*;
    use std::fs::File;
    use std::time::Duration;

    #[test]
    fn without_make_what_is_built_will_do() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, path) = (directory.path(), directory.path().join("lib"));
        let programs = list::choose(Some(&["cfrac".into(), "larson-sized".into()])).unwrap();
        for folder in [tree.join("programs"), path.clone()] {
            std::fs::create_dir(folder).unwrap();
        }
        let write = |name: &str, seconds: u64| {
            let file = File::create(tree.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        let find = || {
            let folder = Programs { path: path.clone(), tree: Some(tree.into()) };
            built(&programs, folder, "/no/such/make")
        };
        let refused = || {
            let failure = find().unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains("could not be built: make: "), "{}", failure.message);
        };
        for name in ["programs/cfrac.c", "programs/larson.cc", "programs/all.h", "lib/cfrac"] {
            write(name, 100);
        }
        refused();
        write("lib/larson", 100);
        write("programs/mleak.c", 101);
        assert_eq!(find().unwrap(), path);
        for source in ["programs/larson.cc", "programs/all.h"] {
            write(source, 101);
            refused();
            write(source, 99);
            find().unwrap();
        }
    }
}
