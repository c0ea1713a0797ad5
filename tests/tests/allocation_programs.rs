//! The programs that allocators are judged by, with little to do, in every mode. Each looks after its own objects
//! and ends with 1 if one has other contents than it should; whatever the mode, they come to the same result.

use std::collections::BTreeSet;

use serde_json::Value;
use spandrel_tests::abi::{Program, Source, abi_dir};
use spandrel_tests::subject::ALL_MODES;

/// From `tests/abi`.
const FOLDER: &str = "../../bench/programs";

#[track_caller]
fn check(file: &str, arguments: &str) {
    let path = format!("{FOLDER}/{file}");
    // As they are measured.
    let program = Program::with(&Source { file: &path, flags: &["-O2", "-lm"] });
    let name = file.split('.').next().expect("a name");
    let runs = program.run_each(ALL_MODES, |job| job.args(arguments.split(' ')));
    let results: BTreeSet<u64> = runs
        .iter()
        .map(|done| {
            let said: Value = serde_json::from_slice(&done.stdout).expect("a line of JSON");
            let number = |key: &str| said[key].as_u64().unwrap_or_else(|| panic!("{key}: {done}"));
            assert_eq!(said["program"], name, "{done}");
            assert!(number("operations") > 0, "{done}");
            assert!(number("peak_bytes") >= number("live_bytes"), "{done}");
            assert!(number("rss_drained") > 0, "{done}");
            number("checksum")
        })
        .collect();
    assert_eq!(results.len(), 1, "{name} depends on the mode: {results:?}");
}

macro_rules! programs {
    ($($test:ident: $file:literal, $arguments:literal;)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $test() {
                check($file, $arguments);
            }
        )*
    };
}

programs! {
    alloc_test: "alloc-test.cc", "threads=2 steps=50000 places=10000";
    barnes: "barnes.c", "bodies=1000 steps=2 threads=2";
    cache_scratch: "cache-scratch.c", "threads=2 rounds=50 writes=1000";
    cache_thrash: "cache-thrash.c", "threads=2 rounds=50 writes=1000";
    cfrac: "cfrac.c", "bits=64 base=70";
    espresso: "espresso.c", "inputs=9 cubes=60";
    glibc_simple: "glibc-simple.c", "objects=5000";
    glibc_thread: "glibc-thread.c", "threads=2 steps=30000";
    larson: "larson.cc", "threads=2 generations=4 steps=5000 sized=1";
    malloc_large: "malloc-large.cc", "steps=15 fill=1";
    mleak: "mleak.c", "threads=150 behind=20";
    mstress: "mstress.c", "threads=2 phases=4 scale=3000";
    prod_con: "prod-con.c", "pairs=2 objects=20000";
    rptest: "rptest.c", "threads=3 loops=40 replaced=100 objects=300";
    server_life: "server-life.c", "threads=2 rate=20 seconds=20 idle=1";
    sh6bench: "sh6bench.c", "threads=2 passes=3 runs=100";
    sh8bench: "sh8bench.c", "threads=3 passes=4 runs=100";
    threadtest: "threadtest.c", "threads=3 rounds=5 objects=3000";
    xmalloc_test: "xmalloc-test.c", "threads=2 batches=4 size=0";
}

#[test]
fn every_program_is_here() {
    let folder = abi_dir().join(FOLDER);
    let found: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder of the programs")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".c") || name.ends_with(".cc"))
        .collect();
    assert_eq!(found, FILES.iter().map(|file| file.to_string()).collect());
}
