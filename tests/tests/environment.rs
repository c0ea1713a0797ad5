//! The environment variables of the library: what they do, and that a wrong value is said once and ignored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Finished, Job, Program, installed, subject};

/// A shell that prints its process id, with the library and the verbose line.
fn shell() -> Job {
    Job::new(installed("sh"))
        .args(["-c", "echo $$"])
        .env("LD_PRELOAD", subject().required_library())
        .env("SPANDREL_VERBOSE", "1")
}

/// The part of the verbose line after `mode `, up to the list of allocators.
fn mode_of(done: &Finished) -> String {
    let lines = done.library_lines();
    let line =
        lines.iter().find(|l| l.contains(" loaded into ")).unwrap_or_else(|| panic!("{done}"));
    let (_, rest) = line.split_once(": mode ").unwrap_or_else(|| panic!("{line}"));
    rest.split(", allocators").next().expect("a part").to_owned()
}

/// Lines that are not the verbose one.
fn complaints(done: &Finished) -> Vec<String> {
    done.library_lines().into_iter().filter(|l| !l.contains(" loaded into ")).collect()
}

#[test]
fn the_verbose_line() {
    let done = shell().env("SPANDREL_MODE", "mimalloc").run().expect_ok();
    let pid = done.out().trim().to_owned();
    let lines = done.library_lines();
    assert_eq!(lines.len(), 1, "{done}");
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    let version = words.get(1).copied().unwrap_or_default();
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{}", lines[0]);
    assert!(lines[0].contains(&format!("(pid {pid}): mode mimalloc, allocators ")), "{}", lines[0]);
    let (_, allocators) = lines[0].split_once(", allocators ").expect("a list of allocators");
    for name in ["sys", "jemalloc", "mimalloc", "mmap"] {
        assert!(allocators.split_whitespace().any(|a| a == name), "{}", lines[0]);
    }
}

#[test]
fn quiet_unless_asked() {
    for mode in ALL_MODES {
        let done = subject().job(installed("sh"), mode).args(["-c", "exit 7"]).run().expect_code(7);
        assert!(done.stderr.is_empty() && done.stdout.is_empty(), "{done}");
    }
    let done =
        subject().job(installed("sh"), "auto").args(["-c", ":"]).env("SPANDREL_VERBOSE", "0");
    let done = done.run().expect_ok();
    assert!(done.stderr.is_empty(), "{done}");
}

#[test]
fn every_mode_is_known() {
    let settings = [
        "sys",
        "jemalloc",
        "mimalloc",
        "mmap",
        "native",
        "auto",
        "template",
        "template=brug",
        "template=0-4KiB:jemalloc,4KiB-64KiB:sys,64KiB-:mmap",
        "template=0-:mimalloc",
        "template=0-:native",
        "template=0-100:sys,100-1M:jemalloc,1M-2G:mmap,2G-:sys",
        "switch",
        "switch=jemalloc",
        "switch=native",
        "switch=sys,point=128KiB",
        "switch=mimalloc,point=1MiB,threshold=4",
    ];
    for setting in settings {
        let done = shell().env("SPANDREL_MODE", setting).run().expect_ok();
        assert!(complaints(&done).is_empty(), "{setting}: {done}");
        let word = setting.split('=').next().expect("a word");
        assert!(mode_of(&done).starts_with(word), "{setting}: {done}");
    }
    let done = shell().run().expect_ok();
    assert!(mode_of(&done).starts_with("auto") && complaints(&done).is_empty(), "{done}");
}

#[test]
fn unknown_modes_are_reported_once_and_ignored() {
    let long = "x".repeat(100_000);
    let values: &[&[u8]] = &[
        b"fast",
        b"SYSTEM",
        b"jemalloc2",
        b"jemalloc,",
        b"template=",
        b"template=nothing",
        b"template=0-4KiB:nothing,4KiB-:sys",
        b"template=0-4KiB:sys,8KiB-:sys",
        b"template=0-4KiB:sys,2KiB-:sys",
        b"template=1-:sys",
        b"template=0-4KiB:sys",
        b"template=0-4XiB:sys,4XiB-:sys",
        b"template=0-99999999999999999999999:sys,99999999999999999999999-:sys",
        b"switch=nothing",
        b"switch=mmap",
        b"switch=sys,point=",
        b"switch=sys,point=big",
        b"switch=sys,threshold=-1",
        b"switch=sys,colour=red",
        b"\xff\xfe",
        long.as_bytes(),
    ];
    for value in values {
        let done = shell().env("SPANDREL_MODE", OsStr::from_bytes(value)).run().expect_ok();
        let lines = complaints(&done);
        let shown = String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned();
        assert_eq!(lines.len(), 1, "{shown}: {done}");
        assert!(lines[0].starts_with("spandrel: SPANDREL_MODE: "), "{shown}: {}", lines[0]);
        assert!(lines[0].len() < 2000, "{shown}: a line of {} bytes", lines[0].len());
        assert!(mode_of(&done).starts_with("auto"), "{shown}: {done}");
    }
    let done = shell().env("SPANDREL_MODE", "fast").run().expect_ok();
    let line = &complaints(&done)[0];
    assert!(line.contains("unknown mode 'fast'") && line.contains("; using "), "{line}");
}

#[test]
fn variables_that_nothing_reads_are_named() {
    let done = shell()
        .env("SPANDREL_MODEE", "sys")
        .env("SPANDREL_COLOUR", "")
        .env("SPANDREL_LIB", "/a/libspandrel.so")
        .env("SPANDRELS", "1")
        .run()
        .expect_ok();
    let mut lines = complaints(&done);
    lines.sort();
    assert_eq!(lines.len(), 2, "{done}");
    assert!(lines[0].starts_with("spandrel: SPANDREL_COLOUR: there is no such variable"), "{done}");
    assert!(lines[1].ends_with("no such variable; SPANDREL_MODE may be meant"), "{done}");
}

/// Every process of a job says it, and none says it twice: a fork is not a new program.
#[test]
fn a_fork_does_not_repeat_the_report() {
    let done = shell()
        .env("SPANDREL_MODE", "fast")
        .args(["x"])
        .env("SPANDREL_VERBOSE", "0")
        .run()
        .expect_ok();
    assert_eq!(complaints(&done).len(), 1, "{done}");
    let job = Job::new(installed("bash"))
        .env("LD_PRELOAD", subject().required_library())
        .env("SPANDREL_MODE", "fast")
        .args(["-c", "(: ; :) ; (: | : ; :)"]);
    let done = job.run().expect_ok();
    assert_eq!(complaints(&done).len(), 1, "{done}");
}

#[test]
fn names_of_the_paper() {
    let names = [
        ("SYS", "sys"),
        ("JEMALLOC", "jemalloc"),
        ("MIMALLOC", "mimalloc"),
        ("MMAP", "mmap"),
        ("BRUGTEMPLATE", "template"),
        ("BRUGAUTOOPT", "auto"),
        ("brugtemplate", "template"),
        ("Jemalloc", "jemalloc"),
    ];
    for (paper, ours) in names {
        let done = shell().env("BRUG_ALLOC", paper).run().expect_ok();
        assert!(mode_of(&done).starts_with(ours), "{paper}: {done}");
        assert!(complaints(&done).is_empty(), "{paper}: {done}");
    }
    let done = shell().env("BRUG_ALLOC", "JEMALLOC").env("SPANDREL_MODE", "mmap").run().expect_ok();
    assert!(mode_of(&done).starts_with("mmap"), "{done}");
    let done = shell().env("BRUG_ALLOC", "TURBO").run().expect_ok();
    let lines = complaints(&done);
    assert!(lines.len() == 1 && lines[0].starts_with("spandrel: BRUG_ALLOC: "), "{done}");
}

fn with_profile(text: &[u8]) -> (Finished, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("profile.toml");
    std::fs::write(&path, text).expect("write the profile");
    (shell().env("SPANDREL_PROFILE", &path).run().expect_ok(), path.display().to_string())
}

#[test]
fn profiles() {
    let text = "# a comment\nversion = 1\nmode = \"template\"   # another\n\n[template]\n\"0-4KiB\" = \
                \"jemalloc\"\n\"4KiB-64KiB\" = \"sys\"\n\"64KiB-\" = \"mmap\"\n";
    let (done, _) = with_profile(text.as_bytes());
    assert!(complaints(&done).is_empty(), "{done}");
    assert!(mode_of(&done).starts_with("template"), "{done}");
    for mode in ["sys", "mimalloc", "switch=jemalloc,point=64KiB", "template=brug"] {
        let (done, _) = with_profile(format!("version = 1\nmode = \"{mode}\"\n").as_bytes());
        assert!(complaints(&done).is_empty(), "{done}");
        assert!(mode_of(&done).starts_with(mode.split('=').next().expect("a word")), "{done}");
    }
    // Windows' line ends, and no line end at the end.
    let (done, _) = with_profile(b"version = 1\r\nmode = \"sys\"");
    assert!(complaints(&done).is_empty() && mode_of(&done) == "sys", "{done}");
}

#[test]
fn wrong_profiles_are_reported_with_the_line() {
    let head = "version = 1\nmode = \"template\"\n[template]\n";
    // Text, and the line that is wrong (0: no line can be named).
    let profiles: &[(String, usize)] = &[
        ("version = 2\nmode = \"sys\"\n".into(), 1),
        ("version = one\nmode = \"sys\"\n".into(), 1),
        ("version = 1\nmode = \"fast\"\n".into(), 2),
        ("version = 1\nmode = sys\n".into(), 2),
        ("version = 1\nmode = \"sys\n".into(), 2),
        ("version = 1\nmode = \"sys\"\ncolour = \"red\"\n".into(), 3),
        ("version = 1\nmode = \"sys\"\nmode = \"mmap\"\n".into(), 3),
        ("version = 1\n\n\nwhat is this\n".into(), 4),
        ("version = 1\n[paint]\n".into(), 2),
        (format!("{head}\"0-4KiB\" = \"nothing\"\n\"4KiB-\" = \"sys\"\n"), 4),
        (format!("{head}\"0-4KiB\" = \"sys\"\n\"8KiB-\" = \"sys\"\n"), 5),
        (format!("{head}\"0-4KiB\" = \"sys\"\n\"2KiB-\" = \"sys\"\n"), 5),
        (format!("{head}\"1KiB-4KiB\" = \"sys\"\n\"4KiB-\" = \"sys\"\n"), 4),
        (format!("{head}\"0-4KiB\" = \"sys\"\n\"4KiB-8KiB\" = \"sys\"\n"), 5),
        (format!("{head}\"0-\" = \"sys\"\n\"4KiB-\" = \"sys\"\n"), 5),
        (format!("{head}\"0-4XB\" = \"sys\"\n"), 4),
        (format!("{head}\"4KiB-0\" = \"sys\"\n"), 4),
        ("mode = \"sys\"\n".into(), 0),
        ("\0\u{1}\u{2}".into(), 1),
    ];
    for (text, line) in profiles {
        let (done, path) = with_profile(text.as_bytes());
        let lines = complaints(&done);
        assert_eq!(lines.len(), 1, "{text:?}: {done}");
        assert!(lines[0].contains(&path), "{text:?}: {}", lines[0]);
        let named = [format!("{path}:{line}"), format!("line {line}")];
        assert!(
            *line == 0 || named.iter().any(|n| lines[0].contains(n.as_str())),
            "{text:?}: expected line {line}: {}",
            lines[0]
        );
        assert!(mode_of(&done).starts_with("auto"), "{text:?}: {done}");
    }
}

#[test]
fn profiles_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let huge = folder.path().join("huge");
    std::fs::write(&huge, vec![b'#'; 8 << 20]).expect("write");
    for path in [folder.path().join("missing"), folder.path().to_path_buf(), huge] {
        let done = shell().env("SPANDREL_PROFILE", &path).run().expect_ok();
        assert_eq!(complaints(&done).len(), 1, "{}: {done}", path.display());
        assert!(mode_of(&done).starts_with("auto"), "{done}");
    }
    let (done, _) = with_profile(&[0xff, 0xfe, 0, 0x80].repeat(1000));
    assert_eq!(complaints(&done).len(), 1, "{done}");
}

#[test]
fn the_library_leaves_no_descriptor_open() {
    let list = |job: Job| job.args(["-c", "ls /proc/self/fd"]).run().expect_ok().out();
    let without = list(Job::new(installed("sh")));
    for mode in ALL_MODES {
        assert_eq!(list(subject().job(installed("sh"), mode)), without, "mode {mode}");
    }
}

#[test]
fn standard_streams_closed() {
    for mode in ALL_MODES {
        let done = subject()
            .job(installed("sh"), mode)
            .env("SPANDREL_VERBOSE", "1")
            .env("SPANDREL_STATS", "1")
            .args(["-c", "exec <&- >&- 2>&-; exec sh -c 'exec 3>&1; : ; exit 5'"])
            .run();
        assert!(done.stopped.is_none() && done.signal.is_none(), "{done}");
    }
    // What a program opens as its descriptor 2 is no place for the library's words.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "exec 2>&-; exec 2>data; echo precious >&2";
    let job = subject().job(installed("sh"), "auto").args(["-c", script]).dir(folder.path());
    job.env("SPANDREL_VERBOSE", "1").run().expect_ok();
    let data = std::fs::read_to_string(folder.path().join("data")).expect("read");
    assert_eq!(data, "precious\n");
}

#[test]
fn a_wrong_number_is_said_once_and_ignored() {
    for (name, value) in [("SPANDREL_RELEASE_RATE", "fast"), ("SPANDREL_BACKGROUND", "-1")] {
        let done = shell().env(name, value).run().expect_ok();
        let lines = complaints(&done);
        assert_eq!(lines.len(), 1, "{done}");
        assert!(lines[0].contains(name) && lines[0].contains(value), "{done}");
        let done = shell().env(name, "0").run().expect_ok();
        assert!(complaints(&done).is_empty(), "{done}");
    }
    let done = shell().env("SPANDREL_RELEASE_RATE", "512KiB").run().expect_ok();
    let lines = complaints(&done);
    assert!(lines.len() == 1 && lines[0].contains("'512KiB' is not a whole number"), "{done}");
}

/// Whether a program with a large heap has memory given back while it sleeps, and a thread for it.
#[test]
fn memory_goes_back_while_the_program_sleeps() {
    let program = Program::new("sleeping_heap.c");
    let resident = |rate: &str, thread: &str| {
        let done = subject()
            .job(program.path(), "native")
            .env("SPANDREL_RELEASE_RATE", rate)
            .env("SPANDREL_BACKGROUND", thread)
            .run()
            .expect_ok();
        let text = done.out();
        let numbers: Vec<u64> =
            text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), 3, "{text}");
        (numbers[0], numbers[1], numbers[2])
    };
    // Mebibytes before and after, threads. An eighth of all objects is live. The thread may have left when there was nothing more to do.
    for rate in ["256", "256MiB"] {
        let (before, after, threads) = resident(rate, "1");
        assert!(before > 200 && after < before / 2 && threads <= 2, "{before} {after} {threads}");
    }
    for rate in ["0", "0MiB"] {
        let (before, after, threads) = resident(rate, "1");
        assert!(after > before / 2 && threads <= 2, "{before} {after} {threads}");
    }
    let (before, after, threads) = resident("256", "0");
    assert!(after > before / 2 && threads == 1, "{before} {after} {threads}");
}

/// With nothing to do the library's thread sleeps until there is something.
#[test]
fn the_thread_sleeps_when_the_program_does() {
    subject().required_library();
    let program = Program::new("quiet_thread.c");
    subject().job(program.path(), "native").run().expect_ok();
}
