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
        // Beside the test that runs. Another process may build it at this moment: it gets its name when it is whole.
        let name = std::env::current_exe().unwrap().with_file_name("judge-of-histories");
        let built = name.with_extension(std::process::id().to_string());
        let outcome = Command::new("go")
            .args(["build", "-o"])
            .arg(&built)
            .arg(".")
            .current_dir(&sources)
            .output()
            .expect("go is installed by scripts/setup test");
        assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
        std::fs::rename(&built, &name).unwrap();
        name
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
