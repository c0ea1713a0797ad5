//! One run of a program: prepared, started, given its work, at rest, ended.

use super::list::{FOLDER, PORT, PYTHON, Program, Work};
use super::tree::{PROGRAM_FILES, SHELL_FILES, State, Tree};
use serde_json::{Value, json};
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::contender::Contender;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Work that takes longer hangs.
const WORK_MAX: Duration = Duration::from_secs(180);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// The user and group that programs have which refuse to be run by root.
const NOBODY: u32 = 65534;
/// Where Debian has the server of PostgreSQL, which is on no path.
const POSTGRES: &str = "/usr/lib/postgresql";

/// What a program is run with.
#[derive(Clone)]
pub struct Place {
    /// The worker.
    pub worker: PathBuf,
    /// The interpreter of Python.
    pub python: String,
}

/// A program that is done with its work, and may rest.
pub struct Running {
    program: &'static Program,
    tree: Tree,
    folder: Folder,
    /// How it stood at the end of its work.
    worked: State,
    output: String,
}

impl Running {
    /// Starts a program, and waits until its work is done.
    pub fn start(
        program: &'static Program,
        contender: &Contender,
        place: &Place,
    ) -> Result<Self, String> {
        let folder = Folder::new(program, place)?;
        let mut contender = contender.clone();
        if let (true, Some(library)) = (folder.is_nobodys, &contender.preload) {
            // The library's own folder may be closed to others.
            let copy = folder.path().join(library.file_name().unwrap_or_default());
            fs::copy(library, &copy).map_err(|why| format!("{}: {why}", copy.display()))?;
            contender.preload = Some(copy);
        }
        folder.shell(program.prepare)?;
        let words = folder.words(program.command);
        let mut tree = folder.start(&contender, &words, PROGRAM_FILES)?;
        let worked = match program.work {
            Work::Job => folder.wait_for_end(&mut tree),
            Work::Script => folder.wait_until(&mut tree, || folder.is_ready()),
            Work::Server { answers, .. } => {
                folder.wait_until(&mut tree, || folder.shell(answers).is_ok())
            }
        }?;
        let mut running = Self { program, tree, folder, worked, output: String::new() };
        running.output = match program.work {
            Work::Server { client, .. } => running.folder.shell(client)?,
            _ if !program.result.is_empty() => running.folder.shell(program.result)?,
            _ => running.folder.read(PROGRAM_FILES[0]),
        };
        running.worked = running.tree.say("look")?;
        Ok(running)
    }

    /// How it stands.
    pub fn look(&mut self) -> Result<State, String> {
        self.tree.say("look")
    }

    /// Whether it holds memory when its work is done.
    pub fn rests(program: &Program) -> bool {
        !matches!(program.work, Work::Job)
    }

    /// Ends it: what it used. `at_rest`: how it stood then.
    pub fn end(mut self, at_rest: Option<State>) -> Result<Value, String> {
        let last = match self.program.work {
            Work::Job => self.worked,
            Work::Script => self.tree.say("close")?,
            Work::Server { end, .. } => self.tree.say(end)?,
        };
        if last.ended != Some(0) {
            return Err(self.folder.failure(last.ended, PROGRAM_FILES[1]));
        }
        let mut result = json!({
            "cpu_ns": last.cpu_ns,
            "wall_ns": self.worked.wall_ns,
            "peak_rss": last.peak_rss,
            "worked_rss": self.worked.rss,
            "processes": self.worked.processes,
            "output": self.output,
        });
        if let Some(state) = at_rest {
            result["rested_rss"] = state.rss.into();
            result["rest_cpu_ns"] = (state.cpu_ns - self.worked.cpu_ns).max(0.0).into();
        }
        Ok(result)
    }
}

/// The folder that a program runs in.
struct Folder {
    /// Removed at the end.
    _around: Scratch<TempDir>,
    path: PathBuf,
    worker: PathBuf,
    python: String,
    port: String,
    is_nobodys: bool,
}

impl Folder {
    fn new(program: &Program, place: &Place) -> Result<Self, String> {
        let failed = |why: std::io::Error| format!("no folder for {}: {why}", program.name);
        let around = Scratch::directory_in(Kind::Bench, &usual_place()).map_err(failed)?;
        // What belongs to another user lies in a folder of this user, and can be removed.
        fs::set_permissions(around.path(), fs::Permissions::from_mode(0o711)).map_err(failed)?;
        let path = around.path().join("run");
        fs::create_dir(&path).map_err(failed)?;
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|one| one.local_addr());
        let port = port.map_err(failed)?.port().to_string();
        let is_nobodys = program.never_root && nix::unistd::geteuid().is_root();
        let (worker, python) = (place.worker.clone(), place.python.clone());
        let made = Self { _around: around, path, worker, python, port, is_nobodys };
        for (name, text) in program.files {
            fs::write(made.path().join(name), made.fill(text)).map_err(failed)?;
        }
        if is_nobodys {
            chown(made.path(), Some(NOBODY), Some(NOBODY)).map_err(failed)?;
        }
        Ok(made)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&self, text: &str) -> String {
        let folder = self.path().to_string_lossy();
        text.replace(PORT, &self.port).replace(FOLDER, &folder).replace(PYTHON, &self.python)
    }

    /// The words of a command line, by the user that it has to have.
    fn words(&self, line: &str) -> Vec<String> {
        let mut words = Vec::new();
        if self.is_nobodys {
            let id = |what: &str| format!("--{what}={NOBODY}");
            words.extend(["setpriv".into(), id("reuid"), id("regid"), "--clear-groups".into()]);
        }
        words.extend(line.split_whitespace().map(|word| self.fill(word)));
        words
    }

    /// The folder and the environment of a command.
    fn prepare(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        let path =
            server_folders().into_iter().fold(path, |path, folder| format!("{path}:{folder}"));
        command.current_dir(self.path()).env("PATH", path).env("HOME", self.path());
        command.env("TMPDIR", self.path()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    }

    fn start(
        &self,
        contender: &Contender,
        words: &[String],
        files: [&str; 2],
    ) -> Result<Tree, String> {
        Tree::start(&self.worker, contender, words, files, |command| self.prepare(command))
    }

    /// Runs a shell script on the system's allocator: what it prints.
    fn shell(&self, script: &str) -> Result<String, String> {
        let mut words = self.words("sh -c");
        words.push(self.fill(script));
        let mut tree = self.start(&Contender::system(), &words, SHELL_FILES)?;
        match self.wait_for_end(&mut tree)?.ended {
            Some(0) => Ok(self.read(SHELL_FILES[0])),
            ended => Err(format!("'{script}': {}", self.failure(ended, SHELL_FILES[1]))),
        }
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn is_ready(&self) -> bool {
        self.read(PROGRAM_FILES[0]).lines().last() == Some("ready")
    }

    fn wait_until(&self, tree: &mut Tree, is_done: impl Fn() -> bool) -> Result<State, String> {
        let begun = Instant::now();
        while !is_done() {
            let state = tree.say("ended")?;
            if state.ended.is_some() {
                return Err(self.failure(state.ended, PROGRAM_FILES[1]));
            }
            if begun.elapsed() > WORK_MAX {
                return Err("given up: it takes too long".into());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        tree.say("look")
    }

    /// How it stands when it has ended by itself.
    fn wait_for_end(&self, tree: &mut Tree) -> Result<State, String> {
        let begun = Instant::now();
        while tree.say("ended")?.ended.is_none() {
            if begun.elapsed() > WORK_MAX {
                return Err("given up: it takes too long".into());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        tree.say("wait")
    }

    /// What is said of a program that did not end well.
    fn failure(&self, ended: Option<i32>, errors: &str) -> String {
        let errors = self.read(errors);
        let last = errors.trim().lines().last().unwrap_or("nothing on standard error");
        match ended {
            Some(code) if code > 128 => format!("ended by signal {}: {last}", code - 128),
            Some(code) => format!("ended with {code}: {last}"),
            None => format!("does not end: {last}"),
        }
    }
}

/// Where folders are made: programs have limits for paths (a socket's has 107 bytes, a URL no blank).
fn usual_place() -> PathBuf {
    const LONGEST: usize = 50;
    let place = std::env::temp_dir();
    let text = place.to_string_lossy();
    let is_plain = text.len() <= LONGEST && !text.contains(|one: char| one.is_whitespace());
    if is_plain { place } else { "/tmp".into() }
}

/// Folders of servers that are on no path.
fn server_folders() -> Vec<String> {
    let versions = fs::read_dir(POSTGRES).into_iter().flatten().flatten();
    versions.map(|version| format!("{}/bin", version.path().display())).collect()
}

/// Whether a command is on the path or in a folder of servers.
pub fn is_installed(command: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').map(String::from).chain(server_folders());
    folders.into_iter().any(|folder| Path::new(&folder).join(command).is_file())
}
