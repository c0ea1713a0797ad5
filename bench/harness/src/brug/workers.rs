//! The workers: the same program with each allocator as `#[global_allocator]`.

use super::list::Workload;
use serde_json::Value;
use spandrel_console::Failure;
use spandrel_console::shutdown::output;
use spandrel_measure::contender::{Contender, Role, STATIC};
use spandrel_measure::places;
use spandrel_measure::process;
use spandrel_measure::rounds::RUN_MAX;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Allocators that are a program's global allocator without Spandrel: what tables call them, and the
/// worker. The first is what ratios are taken against.
const DIRECT: [(&str, &str); 3] =
    [("sys", "system"), ("jemalloc", "jemalloc"), ("mimalloc", "mimalloc")];
/// The worker that has Spandrel as its global allocator.
const SPANDREL: &str = "spandrel";
/// Its modes that have one answer for each size for good.
pub const FIXED: [&str; 6] = ["sys", "jemalloc", "mimalloc", "native", MMAP, "template=brug"];
const MMAP: &str = "mmap";
/// The one that is to be as good as the best of them.
pub const AUTO: &str = "spandrel";
/// The same where it does not learn while it runs, and with a profile that was trained for the workload.
pub const STILL: &str = "spandrel static";
pub const TRAINED: &str = "spandrel trained";

/// Rounds of each step of the training: the least of which one may disagree.
const TRAINING_RUNS: &str = "6";

const WAY_OUT: &str = "run 'make -C bench/peers paper' in the source tree, or name the folder \
                       with the executables in SPANDREL_PAPER";

/// The folder with the workers, and the library to train with, if one is named.
pub struct Workers {
    folder: PathBuf,
    library: Option<PathBuf>,
}

/// The folder that `make -C bench/peers paper` fills, or the one that is named.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("SPANDREL_PAPER").map(PathBuf::from);
    let built = || Some(places::source_tree()?.join("bench/peers/lib/paper"));
    named.or_else(built).filter(|path| path.is_dir())
}

impl Workers {
    /// Finds all of them.
    pub fn find(library: Option<&Path>) -> Result<Self, Failure> {
        let folder = folder().ok_or_else(|| {
            Failure::refused(format!("the workers of the suite 'paper' were not found: {WAY_OUT}"))
        })?;
        let files = DIRECT.iter().map(|(_, file)| *file).chain([SPANDREL]);
        match files.into_iter().find(|file| !folder.join(file).is_file()) {
            None => Ok(Self { folder, library: library.map(Path::to_path_buf) }),
            Some(missing) => Err(Failure::refused(format!(
                "the worker '{missing}' of the suite 'paper' is not built in '{}': {WAY_OUT}",
                folder.display()
            ))),
        }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One run: what the worker said, and what the whole process took.
    pub fn run(
        &self,
        contender: &Contender,
        workload: &Workload,
        scale: f64,
    ) -> Result<Value, String> {
        let mut command = Command::new(self.file(contender));
        command.args([workload.name, &workload.count(scale).to_string()]);
        contender.prepare(&mut command);
        let ended = process::run(&mut command, Some(RUN_MAX))?.success()?;
        let mut said = json(&ended.output)?;
        let members = said.as_object_mut().ok_or("its output is not an object")?;
        members.insert("cpu_ns".into(), ended.cpu_ns.into());
        members.insert("wall_ns".into(), ended.wall_ns.into());
        members.insert("minor_faults".into(), ended.faults.into());
        Ok(said)
    }

    /// Trains a profile for a workload, with the worker that has glibc and is preloaded.
    pub fn train(&self, workload: &Workload, scale: f64, profile: &Path) -> Result<(), String> {
        let own = std::env::current_exe().map_err(|why| why.to_string())?;
        let mut command = Command::new(own);
        command.args(["tune", "--runs", TRAINING_RUNS, "--out"]).arg(profile);
        self.library.iter().for_each(|library| _ = command.arg("--lib").arg(library));
        command.arg("--");
        command.arg(self.folder.join(DIRECT[0].1));
        command.args([workload.name, &workload.count(scale).to_string()]);
        let output = output(&mut command).map_err(|why| why.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        }
    }

    /// How an object of the job grows in the default mode.
    pub fn watch(&self, workload: &Workload, scale: f64) -> Result<Value, String> {
        let mut command = Command::new(self.folder.join(SPANDREL));
        command.args(["watch", workload.name, &workload.count(scale).to_string()]);
        spandrel("auto").prepare(&mut command);
        // The list of looks is longer than a pipe is wide: a reader of its own is needed.
        let output = output(&mut command).map_err(|why| why.to_string())?;
        match output.status.success() {
            true => json(&String::from_utf8_lossy(&output.stdout)),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        }
    }

    fn file(&self, contender: &Contender) -> PathBuf {
        let direct = DIRECT.iter().find(|(name, _)| *name == contender.name);
        self.folder.join(direct.map_or(SPANDREL, |(_, file)| file))
    }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|why| format!("its output is not JSON: {why}"))
}

fn spandrel(mode: &str) -> Contender {
    Contender { preload: None, ..Contender::spandrel(mode, Path::new("")) }
}

/// `auto` with a trained profile.
pub fn trained(profile: &Path) -> Contender {
    let env = vec![("SPANDREL_PROFILE".into(), profile.into())];
    Contender { name: TRAINED.into(), env, ..spandrel("auto") }
}

/// The contenders of a workload: allocators by themselves, the fixed modes, `auto`, and `auto` that does not learn.
pub fn contenders(workload: &Workload) -> Vec<Contender> {
    let direct =
        DIRECT.iter().map(|(name, _)| Contender { name: (*name).into(), ..Contender::system() });
    let modes = FIXED.iter().filter(|mode| !(workload.is_small && **mode == MMAP));
    direct.chain(modes.chain(&["auto", STATIC]).map(|mode| spandrel(mode))).collect()
}

/// The names of the allocators that are measured both by themselves and behind Spandrel.
pub fn both_ways() -> impl Iterator<Item = (&'static str, String)> {
    DIRECT.iter().map(|(name, _)| (*name, format!("spandrel {name}")))
}

/// Whether it is Spandrel in a mode that has one answer for each size.
pub fn is_fixed(contender: &Contender) -> bool {
    contender.role == Role::Ours && ![AUTO, STILL, TRAINED].contains(&contender.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::list;
    use super::*;

    #[test]
    fn a_page_for_each_small_object_is_left_out() {
        let names = |workload: &str| -> Vec<String> {
            let chosen = list::choose(Some(&[workload.to_string()])).unwrap();
            contenders(&chosen[0]).into_iter().map(|contender| contender.name).collect()
        };
        assert_eq!(names("vecdeque").len(), names("btreemap").len() + 1);
        assert!(!names("btreemap").contains(&"spandrel mmap".to_string()));
        for (direct, behind) in both_ways() {
            assert!(names("hardly").contains(&direct.to_string()));
            assert!(names("hardly").contains(&behind));
        }
        let fixed = contenders(&list::ALL[0]).into_iter().filter(is_fixed).count();
        assert_eq!(fixed, FIXED.len());
    }
}
