//! What is shown on terminals of any width, and of any kind.

mod common;

use common::Place;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

/// Runs a command on a terminal of this width: everything that it has written there.
fn on_terminal(columns: u16, mut command: Command) -> String {
    let (mut near, mut far) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let size = (&raw const size).cast_mut();
    // SAFETY: two places for descriptors, and a size, which is read; the name and the modes are left out.
    let done = unsafe {
        libc::openpty(&raw mut near, &raw mut far, std::ptr::null_mut(), std::ptr::null_mut(), size)
    };
    assert_eq!(done, 0);
    // SAFETY: both are new, and nothing else has them.
    let (near, far) = unsafe { (OwnedFd::from_raw_fd(near), OwnedFd::from_raw_fd(far)) };
    let mut near = File::from(near);
    let reader = std::thread::spawn(move || {
        let (mut all, mut some) = (Vec::new(), [0; 4096]);
        // The other end is closed: an error on Linux.
        while let Ok(length @ 1..) = near.read(&mut some) {
            all.extend_from_slice(&some[..length]);
        }
        all
    });
    let mut child = command.stdout(far.try_clone().unwrap()).stderr(far).spawn().unwrap();
    let status = child.wait().unwrap();
    // The command holds the last descriptors of the terminal.
    drop(command);
    let text = String::from_utf8(reader.join().unwrap()).unwrap();
    assert!(status.success(), "{text}");
    text
}

/// `spandrel WORDS…` on a terminal with styles.
fn spandrel(place: &Place, words: &[&str]) -> Command {
    let mut command = common::spandrel();
    command
        .args(words)
        .env("SPANDREL_LIB", &place.library)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    command
}

/// A job in several modes: it has bars on standard error, and tables on standard output.
fn tune(place: &Place) -> Command {
    let out = place.directory.path().join("profile");
    let out = out.to_str().unwrap();
    spandrel(place, &["tune", "--runs", "2", "--out", out, "--", "true"])
}

/// The text without the sequences that move the cursor or set a style, and without what was drawn over.
fn plain(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\x1b' => _ = rest.by_ref().find(|letter| letter.is_ascii_alphabetic()),
            letter => plain.push(letter),
        }
    }
    let lines = plain.split('\n').map(|line| line.trim_end_matches('\r'));
    lines.map(|line| line.rsplit('\r').next().unwrap_or_default().trim_end().to_owned()).collect()
}

#[test]
fn tables_are_read_at_any_width() {
    let place = Place::new();
    for (columns, most) in [(0, 80), (1, 20), (20, 20), (40, 40), (79, 79), (200, 200)] {
        let stats = spandrel(&place, &["run", "--stats", "--", "true"]);
        for (command, words) in [
            (stats, &["allocator", "requests", "reallocations", "21.0 MiB", "100.0%"][..]),
            (tune(&place), &["jemalloc", "elapsed", "128KiB", "others"]),
        ] {
            let text = on_terminal(columns, command);
            let lines = plain(&text);
            let all = lines.join("\n");
            for word in words {
                assert!(all.contains(word), "{columns} columns, {word}:\n{all}");
            }
            // A title is not broken.
            let long = |line: &&String| line.chars().count() > most.max(40) && line.contains(' ');
            let long = lines.iter().find(|line| long(line) && !line.starts_with("  "));
            assert_eq!(long, None, "{columns} columns:\n{all}");
        }
    }
}

#[test]
fn styles_and_bars_are_for_terminals_that_have_them() {
    const BOLD: &str = "\x1b[1m";
    let place = Place::new();
    let text = on_terminal(100, tune(&place));
    // The first bar may be over before it is drawn.
    assert!(text.contains(BOLD) && text.contains("] 0/"), "bold words, and a bar: {text:?}");

    // Behind a bar there is room for `^C`, which on the next line would keep it from being removed.
    let bars = text.replace("\x1b[2K", "");
    let bars: Vec<&str> =
        bars.split(['\r', '\n']).filter(|line| line.contains("learning")).collect();
    assert!(!bars.is_empty() && bars.iter().all(|bar| bar.chars().count() <= 96), "{bars:?}");

    let with = |name: &str, value: &str| {
        let mut command = tune(&place);
        command.env(name, value);
        on_terminal(100, command)
    };
    assert!(!with("NO_COLOR", "1").contains(BOLD));
    assert!(with("NO_COLOR", "").contains(BOLD));
    for kind in ["dumb", ""] {
        let text = with("TERM", kind);
        assert!(!text.contains('\x1b') && text.contains("counting: 1 run"), "{text:?}");
    }
}

#[test]
fn a_bar_counts_the_steps_of_its_own_stage() {
    let text = on_terminal(100, tune(&Place::new()));
    let counts = text.split_whitespace().filter_map(|word| {
        let (done, all) = word.split_once('/')?;
        Some((done.parse::<u32>().ok()?, all.parse::<u32>().ok()?))
    });
    let counts: Vec<_> = counts.collect();
    assert!(counts.len() > 1, "{text:?}");
    assert!(counts.iter().all(|(done, all)| done <= all && *all > 0), "{counts:?}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in [&["--version"][..], &["--help"], &["run", "--help"], &["durable", "help"]] {
        let full = File::create("/dev/full").unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_spandrel")).args(words).stdout(full).output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("standard output: No space left"), "{words:?}: {said}");
    }
}
