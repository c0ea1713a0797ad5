//! The judge: a program in Go, which is built once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the judge says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// With its figures.
    Linearizable(String),
    /// With the calls that no order explains.
    Not(String),
    /// The file is no history.
    Malformed(String),
}

impl Verdict {
    /// The figures.
    ///
    /// # Panics
    /// The history is not linearizable.
    pub fn expect_linearizable(self) -> String {
        match self {
            Self::Linearizable(figures) => figures,
            other => panic!("{other:#?}"),
        }
    }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("judge");
        // Beside the test that runs, and of its process alone: another may build it at this moment.
        let test = std::env::current_exe().unwrap();
        let built = test.with_file_name(format!("judge-{}", std::process::id()));
        let outcome = Command::new("go")
            .args(["build", "-o"])
            .arg(&built)
            .arg(".")
            .current_dir(&sources)
            .output()
            .expect("go is installed by scripts/setup test");
        assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
        built
    })
}

/// Judges a history.
///
/// # Panics
/// The judge cannot be built: `scripts/setup test` installs Go and the module.
pub fn judge(history: &Path) -> Verdict {
    let outcome = Command::new(program()).arg(history).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match outcome.status.code() {
        Some(0) => Verdict::Linearizable(text(&outcome.stdout)),
        Some(1) => Verdict::Not(text(&outcome.stdout)),
        _ => Verdict::Malformed(text(&outcome.stderr)),
    }
}
