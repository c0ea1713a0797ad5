//! `spandrel trace`: what is refused before anything is done, and plurals.

use std::path::Path;
use std::process::{Command, Output};

const SPANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/redis-spans.trace");

fn trace(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    command.arg("trace").args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::copy(SPANS, here.join("x.trace")).unwrap();
    // The header alone: a program that asked for nothing.
    let whole = std::fs::read(SPANS).unwrap();
    std::fs::write(here.join("none.trace"), &whole[..4096]).unwrap();
    let both = ["export", "x.trace", "--requests", "r.parquet", "--spans", "s.parquet"];
    for (args, parts) in [
        (
            &both[..],
            &["--requests: x.trace has no requests, only spans", "leave --requests out"][..],
        ),
        (&["export", "x.trace", "--requests", "r.parquet"], &["--requests: ", "take --spans"]),
        (&["export", "x.trace", "--spans", "./x.trace"], &["--spans: './x.trace'", "that is read"]),
        (&["export", "x.trace", "--spans", "no/s.parquet"], &["no/s.parquet", "can be written"]),
        (&["export", "x.trace"], &["--requests", "--spans", "Usage"]),
        (&["info", "x.trace", "--out", "x.png"], &["--out: 'x.png'", ".svg"]),
        (&["info", "x.trace", "--sizes", "x.svg", "--out", "x.svg"], &["--sizes and --out"]),
        (&["info", "none.trace", "--out", "x.svg"], &["--out: ", "nothing to draw"]),
        (&["info", "x.trace", "--sizes", "x.trace"], &["--sizes: 'x.trace'", "that is read"]),
        (&["record", "--limit", "1", "true"], &["--limit: ", "'1'", "68KiB"]),
        (&["record", "--limit", "much", "true"], &["--limit: 'much'", "1GiB"]),
    ] {
        let done = trace(here, args);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
        assert_eq!(std::fs::read_dir(here).unwrap().count(), 2, "{args:?}: {said}");
    }
    let done = trace(here, &["export", "x.trace", "--spans", "s.parquet"]);
    assert!(done.status.success() && here.join("s.parquet").exists(), "{}", text(&done.stderr));
}
