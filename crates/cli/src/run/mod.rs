//! `spandrel run`: a program on Spandrel, from the outside.
//!
//! The order matters: first everything is checked that can be checked without
//! starting anything (mode, profile, library, program), then the program is
//! started, then the library is heard or missed, and the program's end becomes
//! ours.

mod child;
mod compare;
mod elf;
mod handshake;
pub mod lookup;
mod program;
mod report;
mod sampler;
mod secure;
pub mod symbols;
mod watch;

pub use child::{Companions, Ended, spawn_and_wait};

use crate::args::RunArgs;
use crate::stats::{self, Gathering};
use crate::trace;
use compare::Comparison;
use handshake::Handshake;
use program::Obstacle;
use report::{Contents, Report};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_measure::{modes, places};
use spandrel_policy::{Experiment, Limit, Mode, ReleaseRate, variables};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use watch::Watch;

/// Runs the program; its exit code, or 128 and the signal that ended it.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let ended = run_with(args, &[])?;
    ended.pass_on();
    Ok(ended.code)
}

/// The same with these variables in its environment.
pub fn run_with(args: &RunArgs, variables: &[(&str, &OsStr)]) -> Result<Ended, Failure> {
    let (name, words) = args.command.split_first().ok_or_else(|| {
        Failure::refused("which program? spandrel run [OPTIONS] -- PROGRAM ARGS…")
    })?;
    let library = places::library(args.lib.as_deref())?;
    let policy = Policy::check(args, &library)?;
    check_environment()?;
    let comparison = Comparison::new(&args.compare, args.runs, &policy, &library)?;

    let path = lookup::find(name)?;
    let mut command = Command::new(&path);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    command.args(words);
    command.envs(variables.iter().copied());
    if let Some(obstacle) = program::inspect(&path, words) {
        if !args.force {
            return Err(refuse(name, &obstacle, "; --force runs it without"));
        }
        say::err(format_args!(
            "spandrel: '{}' runs without Spandrel: {obstacle}",
            name.to_string_lossy()
        ));
        return child::spawn_and_wait(command, Companions::default());
    }

    policy.apply(&mut command);
    command.env("LD_PRELOAD", with_preloaded(&library, std::env::var_os("LD_PRELOAD")));
    if std::env::var_os("LD_AUDIT").is_some_and(|audit| !audit.is_empty()) {
        command.env("GLIBC_TUNABLES", with_thread_storage(std::env::var_os("GLIBC_TUNABLES")));
    }
    if args.verbose {
        command.env("SPANDREL_VERBOSE", "1");
    }
    let report = args.report.as_deref().map(Report::new).transpose()?;
    let gathering = (args.stats || report.is_some()).then(Gathering::new).transpose()?;
    if let Some(gathering) = &gathering {
        command.env("SPANDREL_STATS", gathering.pattern());
    }
    if report.is_some() {
        command.env("SPANDREL_SITES", "1");
    }
    let handshake = Handshake::prepare(&mut command)?;
    let watch = Watch::new(handshake, name.to_string_lossy().into_owned(), policy.mode);
    let with = Companions { watch: Some(watch), is_sampled: report.is_some() };
    let mut ended = child::spawn_and_wait(command, with)?;
    let Some(gathering) = gathering else { return Ok(ended) };
    if args.stats {
        stats::print(&gathering, ended.code);
    }
    if let Some(report) = report {
        // An interrupted run is not wanted again.
        let comparison = comparison.filter(|_| ended.signal.is_none() && !ended.was_interrupted());
        if comparison.is_none() && !args.compare.is_empty() {
            say::err("spandrel: nothing is compared: a signal ended the run");
        }
        let compared = comparison.map(|ways| ways.run(&path, &args.command)).unwrap_or_default();
        let written = report.write(Contents {
            command: &args.command,
            policy: &policy,
            exit_code: ended.code,
            gathering: &gathering,
            samples: std::mem::take(&mut ended.samples),
            compared,
            elapsed: ended.elapsed,
        });
        // The exit code is the program's all the same.
        if let Err(failure) = written {
            say::err(format_args!("spandrel: {}", failure.message));
        }
    }
    Ok(ended)
}

/// Where the program is, which is the first of these words, if the library can be loaded into it.
pub fn loadable(words: &[OsString]) -> Result<PathBuf, Failure> {
    let (name, words) = words.split_first().ok_or_else(|| Failure::refused("which program?"))?;
    let path = lookup::find(name)?;
    match program::inspect(&path, words) {
        Some(obstacle) => Err(refuse(name, &obstacle, "")),
        None => Ok(path),
    }
}

/// How the program shall allocate.
pub struct Policy {
    /// The mode that was asked for, if any was.
    mode: Option<Mode>,
    /// The variable that says so, if it was the command line that asked.
    variable: Option<(&'static str, OsString)>,
}

impl Policy {
    /// Checks what was asked for, or else what the environment asks for: what the
    /// library would only warn about, the command refuses.
    fn check(args: &RunArgs, library: &Path) -> Result<Self, Failure> {
        let inherited = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(text) = &args.mode {
            let mode = modes::check("--mode", text)?;
            modes::check_built_in(&mode, text, library)?;
            return Ok(Self { mode: Some(mode), variable: Some(("SPANDREL_MODE", text.into())) });
        }
        if let Some(path) = &args.profile {
            let checked = modes::check_profile(path)?;
            modes::check_built_in(&checked.mode, &checked.mode.to_string(), library)?;
            if checked.is_prior {
                say::err(format_args!(
                    "--profile: {} was learnt on another kind of machine: the program begins with \
                     it and goes on learning",
                    path.display()
                ));
            }
            let mode = Some(checked.in_force());
            let variable = Some(("SPANDREL_PROFILE", checked.absolute.into()));
            return Ok(Self { mode, variable });
        }
        // In the library's order: the first that is set decides.
        for variable in ["SPANDREL_MODE", "SPANDREL_PROFILE", "BRUG_ALLOC"] {
            let Some(value) = inherited(variable) else { continue };
            let place = format!("{variable} in the environment");
            let named = |failure: Failure| {
                let why = failure.message;
                let why = why.trim_start_matches("--profile: ");
                Failure::refused(format!("{place}: {why}"))
            };
            let (mode, in_force) = if variable == "SPANDREL_PROFILE" {
                let checked = modes::check_profile(Path::new(&value)).map_err(named)?;
                (checked.mode, checked.in_force())
            } else {
                let mode = modes::check(&place, &value.to_string_lossy())?;
                (mode, mode)
            };
            modes::check_built_in(&mode, &mode.to_string(), library).map_err(named)?;
            return Ok(Self { mode: Some(in_force), variable: None });
        }
        Ok(Self { mode: None, variable: None })
    }

    /// What was asked for on the command line stands alone in the environment.
    fn apply(&self, command: &mut Command) {
        if let Some((name, value)) = &self.variable {
            for variable in ["SPANDREL_MODE", "SPANDREL_PROFILE", "BRUG_ALLOC"] {
                command.env_remove(variable);
            }
            command.env(name, value);
        }
    }

    /// The mode that the program is to run in, as text.
    fn name(&self) -> String {
        self.mode.unwrap_or(Mode::Auto).to_string()
    }
}

/// Variables that hold numbers, and what these say.
const NUMBERS: [(&str, &str); 2] = [
    ("SPANDREL_GUARD", "N: one in N requests is guarded; or 0"),
    ("SPANDREL_BACKGROUND", "1, or 0 for no thread"),
];

/// Refuses what the library would say and ignore.
fn check_environment() -> Result<(), Failure> {
    trace::check_environment()?;
    for (name, _) in std::env::vars_os() {
        if let Some(unknown) = name.to_str().and_then(variables::unknown) {
            return Err(Failure::refused(format!("{unknown}; it is in the environment")));
        }
    }
    let limit = std::env::var_os("SPANDREL_LIMIT").unwrap_or_default();
    let limit = limit.to_string_lossy();
    if let Err(why) = Limit::parse(&limit) {
        return Err(Failure::refused(format!("SPANDREL_LIMIT in the environment: {why}")));
    }
    let rate = std::env::var_os("SPANDREL_RELEASE_RATE").unwrap_or_default();
    let rate = rate.to_string_lossy();
    if !rate.is_empty()
        && let Err(why) = ReleaseRate::parse(&rate)
    {
        return Err(Failure::refused(format!("SPANDREL_RELEASE_RATE in the environment: {why}")));
    }
    let experiment = std::env::var_os("SPANDREL_EXPERIMENT").unwrap_or_default();
    let experiment = experiment.to_string_lossy();
    if !experiment.is_empty() {
        let place = "SPANDREL_EXPERIMENT in the environment";
        let experiment = Experiment::parse(&experiment)
            .map_err(|why| Failure::refused(format!("{place}: {why}")))?;
        experiment.mode.map_or(Ok(()), |mode| modes::check(place, mode).map(drop))?;
    }
    let tuner = std::env::var_os("SPANDREL_TUNER").unwrap_or_default();
    let tuner = tuner.to_string_lossy();
    if !["", "0", "1", "restless"].contains(&tuner.as_ref()) {
        return Err(Failure::refused(format!(
            "SPANDREL_TUNER in the environment: '{tuner}' is not 1 or 0"
        )));
    }
    for (name, wanted) in NUMBERS {
        let value = std::env::var_os(name).unwrap_or_default();
        let text = value.to_string_lossy();
        if !text.is_empty() && text.parse::<u32>().is_err() {
            return Err(Failure::refused(format!(
                "{name} in the environment: '{text}' is not a number ({wanted})"
            )));
        }
    }
    Ok(())
}

/// The library first: the library that stands first wins the symbol search.
pub fn with_preloaded(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_os_string();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// Under `LD_AUDIT` the loader divides the threads' storage before it knows of preloaded libraries, and keeps 1.8 KiB
/// for what comes later: less than the hosted allocators have. The tunable makes it keep more, unless a size is set.
fn with_thread_storage(before: Option<OsString>) -> OsString {
    const TUNABLE: &str = "glibc.rtld.optional_static_tls";
    let mut list = before.unwrap_or_default();
    if list.to_string_lossy().contains(TUNABLE) {
        return list;
    }
    if !list.is_empty() {
        list.push(":");
    }
    list.push(TUNABLE);
    list.push("=4096");
    list
}

fn refuse(name: &OsStr, obstacle: &Obstacle, way_out: &str) -> Failure {
    Failure::refused(format!(
        "'{}' cannot run on Spandrel: {obstacle}{way_out}",
        name.to_string_lossy()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_stands_first() {
        let library = Path::new("/l/libspandrel.so");
        assert_eq!(with_preloaded(library, None), "/l/libspandrel.so");
        assert_eq!(with_preloaded(library, Some("".into())), "/l/libspandrel.so");
        assert_eq!(with_preloaded(library, Some("/x.so".into())), "/l/libspandrel.so:/x.so");
    }

    #[test]
    fn a_size_of_the_threads_storage_that_is_set_stays() {
        let ours = "glibc.rtld.optional_static_tls=4096";
        assert_eq!(with_thread_storage(None), ours);
        let other = with_thread_storage(Some("glibc.malloc.hugetlb=1".into()));
        assert_eq!(other, format!("glibc.malloc.hugetlb=1:{ours}").as_str());
        let set = "glibc.rtld.optional_static_tls=9000";
        assert_eq!(with_thread_storage(Some(set.into())), set);
    }
}
