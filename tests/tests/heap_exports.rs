//! What `libspandrel_heap.so` exports and needs: what its header says, and the C library.

use std::collections::BTreeSet;
use std::process::Command;

use spandrel_tests::installed;
use spandrel_tests::subject::{release_dir, workspace};

fn output_of(tool: &str, arguments: &[&str]) -> String {
    let library = release_dir().join("libspandrel_heap.so");
    assert!(library.is_file(), "{} is missing: make build", library.display());
    let output = Command::new(installed(tool)).args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn symbols(which: &str) -> BTreeSet<String> {
    output_of("nm", &["-D", which])
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().expect("a name").to_owned())
        .collect()
}

/// The functions that the header declares: lines that are no comment, with a name before a bracket.
fn declared() -> BTreeSet<String> {
    let header = workspace().join("include/spandrel_heap.h");
    let header = std::fs::read_to_string(header).expect("the header");
    header
        .lines()
        .filter(|line| line.ends_with([';', ',']) && line.contains("(") && !line.starts_with(' '))
        .filter(|line| !line.starts_with("typedef") && !line.starts_with("/*"))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_the_header_says_is_exported_and_nothing_else() {
    let declared = declared();
    assert!(declared.len() > 25, "{declared:?}");
    assert_eq!(symbols("--defined-only"), declared);
}

#[test]
fn it_needs_the_c_library_only() {
    let dynamic = output_of("readelf", &["-dW"]);
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let fine = ["[libc.so.6]", "[ld-linux", "[libpthread.so.0]", "[libgcc_s.so.1]"];
        assert!(fine.iter().any(|name| line.contains(name)), "{line}");
    }
    assert!(dynamic.contains("[libspandrel_heap.so.0]"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL") && !dynamic.contains("RUNPATH"), "{dynamic}");
    let undefined = symbols("--undefined-only");
    assert!(!undefined.contains("__tls_get_addr"), "thread-local storage is not initial-exec");
    // Whatever malloc the program has is none of the heap's business.
    for name in ["malloc", "calloc", "realloc", "free"] {
        assert!(!undefined.contains(name), "{name}");
    }
}
