//! An adapter of another program: one that waits in `read`, and whose list begins empty.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use spandrel_tests::abi::Source;
use spandrel_tests::heap::built;
use spandrel_tests::{Finished, Job, Program};

const ADAPTER: &str = r#"
[program]
name = "list"
about = "a list of numbers"
executables = ["adapted_list"]
version = ["--version"]
versions = ["adapted_list 1."]

[point]
function = "started"

[[root]]
name = "numbers"
array = { symbol = "head" }
count = 1
stride = 8
words = [0]
object_bytes = 16

[[command]]
function = "add"
"#;

/// The program, its adapter, and a folder for its state.
struct Place {
    program: Program,
    folder: tempfile::TempDir,
}

/// A process that has the state.
struct Served {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn sum(&mut self) -> String {
        self.send("sum");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Place {
    fn new() -> Self {
        let source = Source { file: "adapted_list.c", flags: &["-rdynamic"] };
        let place = Self { program: Program::with(&source), folder: tempfile::tempdir().unwrap() };
        place.write("list.toml", ADAPTER);
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn words(&self, adapter: &str) -> Vec<String> {
        let [state, adapter] = ["state", adapter].map(|name| self.path().join(name));
        let words = ["durable", "run", "--dir"].map(str::to_owned);
        let paths = [state, "--adapter".into(), adapter, "--".into(), self.program.path().into()];
        words.into_iter().chain(paths.map(|path| path.display().to_string())).collect()
    }

    fn refused(&self, adapter: &str) -> Finished {
        Job::new(built("spandrel")).args(self.words(adapter)).stdin("sum\n".to_owned()).run()
    }

    fn start(&self, more: &[&str]) -> Served {
        let mut command = Command::new(built("spandrel"));
        command.args(self.words("list.toml")).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Served { child, input, output: BufReader::new(output) }
    }
}

/// By either way of answering, and by a wait alone.
#[test]
fn a_program_that_waits_in_read_keeps_what_it_has_answered() {
    let place = Place::new();
    let mut expected = 0;
    for round in 0..6 {
        let mut served = place.start([&[][..], &["flush"]][round % 2]);
        assert_eq!(served.sum(), expected.to_string(), "round {round}");
        for value in 1..20 {
            served.send(&format!("add {value}"));
            expected += value;
        }
        assert_eq!(served.sum(), expected.to_string(), "round {round}");
        served.kill();
    }
}

/// Signals are held while a batch is open, and none is while the program waits.
#[test]
fn a_program_that_waits_in_read_is_ended_by_a_signal_and_keeps_all() {
    for way in [&[][..], &["flush"]] {
        let place = Place::new();
        let mut served = place.start(way);
        assert_eq!(served.sum(), "0");
        served.send("add 7");
        // It waits for the next line.
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: the number of a process that was started here.
        unsafe { libc::kill(served.child.id() as i32, libc::SIGTERM) };
        let begun = Instant::now();
        while served.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "SIGTERM does not end it: {way:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut served = place.start(way);
        assert_eq!(served.sum(), "7", "{way:?}");
        served.kill();
    }
}

/// It would begin anew beside the data.
#[test]
fn a_state_of_another_adapter_or_program_is_refused() {
    let place = Place::new();
    let mut served = place.start(&[]);
    served.send("add 5");
    assert_eq!(served.sum(), "5");
    served.kill();
    place.write("other.toml", &ADAPTER.replace("\"numbers\"", "\"values\""));
    let done = place.refused("other.toml");
    assert!(done.code == Some(2) && done.err().contains("with another adapter"), "{done}");
    let mut served = place.start(&[]);
    assert_eq!(served.sum(), "5");
    served.kill();
}
