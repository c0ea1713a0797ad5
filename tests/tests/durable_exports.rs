//! What `libspandrel_durable.so` exports and needs: what its headers say, the compiler's hooks, and the C library.

use std::collections::BTreeSet;
use std::process::Command;

use spandrel_tests::installed;
use spandrel_tests::subject::{release_dir, workspace};

fn output_of(tool: &str, arguments: &[&str]) -> String {
    let library = release_dir().join("libspandrel_durable.so");
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
    let header = workspace().join("include/spandrel_durable.h");
    let header = std::fs::read_to_string(header).expect("the header");
    header
        .lines()
        .filter(|line| line.ends_with([';', ',']) && line.contains("(") && !line.starts_with(' '))
        .filter(|line| !line.starts_with("typedef") && !line.starts_with("/*"))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect()
}

/// Functions of the C library that stand in front of its own, as the header says.
const IN_FRONT: [&str; 19] = [
    "memcpy",
    "memmove",
    "memset",
    "mempcpy",
    "bzero",
    "strcpy",
    "stpcpy",
    "strcat",
    "strncpy",
    "strncat",
    "__memcpy_chk",
    "__memmove_chk",
    "__mempcpy_chk",
    "__memset_chk",
    "__strcpy_chk",
    "__stpcpy_chk",
    "__strcat_chk",
    "__strncpy_chk",
    "__strncat_chk",
];

#[test]
fn what_the_header_says_and_the_hooks_are_exported_and_nothing_else() {
    let mut declared = declared();
    assert!(declared.len() > 20, "{declared:?}");
    declared.extend(IN_FRONT.map(str::to_owned));
    let wrapped =
        "malloc calloc realloc free aligned_alloc posix_memalign strdup strndup".split(' ');
    declared.extend(wrapped.map(|name| format!("__wrap_{name}")));
    let (hooks, others): (BTreeSet<_>, BTreeSet<_>) =
        symbols("--defined-only").into_iter().partition(|name| name.starts_with("__tsan_"));
    assert_eq!(others, declared);
    for (width, bits) in [(1, 8), (2, 16), (4, 32), (8, 64), (16, 128)] {
        for hook in ["read", "write", "volatile_write", "read_write"] {
            assert!(hooks.contains(&format!("__tsan_{hook}{width}")), "{hook}{width}");
        }
        for hook in ["load", "store", "exchange", "fetch_nand", "compare_exchange_val"] {
            assert!(hooks.contains(&format!("__tsan_atomic{bits}_{hook}")), "{hook} of {bits}");
        }
    }
}

#[test]
fn it_needs_the_c_library_only() {
    let dynamic = output_of("readelf", &["-dW"]);
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let fine = ["[libc.so.6]", "[ld-linux", "[libpthread.so.0]", "[libgcc_s.so.1]"];
        assert!(fine.iter().any(|name| line.contains(name)), "{line}");
    }
    assert!(dynamic.contains("[libspandrel_durable.so.0]"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL") && !dynamic.contains("RUNPATH"), "{dynamic}");
}
