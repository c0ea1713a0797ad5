//! `spandrel trace`: what is refused before anything is done, what is said of recordings of one kind,
//! and what becomes of damaged ones.

use std::path::Path;
use std::process::{Command, Output};

const SPANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/redis-spans.trace");
const ALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/gcc.trace");

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
    let mut header = whole[..4096].to_vec();
    header[4084..4088].fill(0);
    std::fs::write(here.join("none.trace"), header).unwrap();
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

/// Of a device without an end no more is read than tells that it is no recording.
#[test]
fn what_has_no_end_is_no_recording() {
    for task in [&["info"][..], &["replay"], &["export", "--requests", "x.parquet"]] {
        let place = tempfile::tempdir().unwrap();
        let done = trace(place.path(), &[task, &["/dev/zero"]].concat());
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("/dev/zero: at byte 0: this is no recording"), "{said}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_was_not_recorded_is_said_and_has_no_rows() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let done = trace(here, &["info", SPANS, "--out", "x.svg"]);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(said.contains("requests: not recorded") && said.contains("spans:"), "{said}");
    assert!(!said.contains("objects:") && !said.contains(" 4 KiB  "), "{said}");
    let svg = std::fs::read_to_string(here.join("x.svg")).unwrap();
    assert!(svg.contains("Spans of the page heap") && !svg.contains("Objects"));
    assert!(svg.contains("16 KiB") && !svg.contains("log2"));
    // The header alone: a program that asked for nothing, or was not to be recorded.
    let whole = std::fs::read(SPANS).unwrap();
    let mut header = whole[..4096].to_vec();
    header[4084..4088].fill(0);
    std::fs::write(here.join("none.trace"), header).unwrap();
    let said = text(&trace(here, &["info", "none.trace"]).stdout);
    assert!(said.contains("page heap: nothing was asked of it"), "{said}");
    assert!(!said.contains("bytes in sizes"), "{said}");
}

#[test]
fn a_damaged_recording_ends_in_its_contents_or_in_an_error_with_the_offset() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let whole = std::fs::read(ALL).unwrap();
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    let (mut read, mut refused) = (0, 0);
    for turn in 0..60 {
        let mut bytes = whole.clone();
        match turn % 3 {
            0 => bytes.truncate(next(whole.len())),
            1 => bytes[next(whole.len())] ^= 1 << next(8),
            // Whole blocks are missing.
            _ => bytes.truncate(4096 + next(whole.len() / 65536) * 65536),
        }
        std::fs::write(here.join("x.trace"), &bytes).unwrap();
        for args in [
            &["info", "x.trace", "--out", "x.svg", "--sizes", "x.csv"][..],
            &["info", "--json", "x.trace"],
            &["export", "x.trace", "--requests", "r.parquet", "--spans", "s.parquet"],
        ] {
            let done = trace(here, args);
            let said = text(&done.stderr);
            match done.status.code() {
                Some(0) => read += 1,
                Some(2) => {
                    assert!(said.contains("x.trace: at byte "), "{args:?}: {said}");
                    assert!(turn % 3 == 1 || said.contains("cut off"), "{args:?}: {said}");
                    refused += 1;
                }
                _ => panic!("turn {turn}, {args:?}: {done:?}"),
            }
        }
    }
    assert!(read > 0 && refused > 120, "{read}, {refused}");
}
