//! `include/spandrel.h` is a C99, C11 and C++17 header, and programs that use it link both ways.

use std::path::Path;
use std::process::Command;

use spandrel_tests::subject::{release_dir, workspace};
use spandrel_tests::{Job, abi::abi_dir, subject};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"];

fn compile(compiler: &str, arguments: &[&str]) {
    let include = format!("-I{}", workspace().join("include").display());
    let output = Command::new(compiler).args(STRICT).arg(&include).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("install {compiler}: make setup ({e})"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}:\n{words}");
}

#[test]
fn the_header_stands_alone_in_every_language() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Twice, as nothing but an include guard allows it.
    let text = "#include <spandrel.h>\n#include <spandrel.h>\nint main(void) { return 0; }\n";
    let (c, cpp) = (folder.path().join("alone.c"), folder.path().join("alone.cc"));
    std::fs::write(&c, text).expect("write");
    std::fs::write(&cpp, text).expect("write");
    let path = |p: &Path| p.display().to_string();
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        compile("cc", &[standard, "-fsyntax-only", "-Wstrict-prototypes", &path(&c)]);
    }
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        compile("g++", &[standard, "-fsyntax-only", &path(&cpp)]);
    }
}

fn build_and_run(compiler: &str, standard: &str, link: &[&str], run: impl Fn(Job) -> Job) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("api").display().to_string();
    let language = if compiler == "g++" { "-xc++" } else { "-xc" };
    let source = abi_dir().join("api.c").display().to_string();
    let mut arguments = vec![
        standard,
        "-O1",
        "-fno-builtin",
        "-pthread",
        "-o",
        &program,
        language,
        &source,
        "-xnone",
    ];
    arguments.extend(link);
    compile(compiler, &arguments);
    let done = run(Job::new(&program).env("SPANDREL_VERBOSE", "1")).run().expect_ok();
    assert!(done.library_lines().iter().any(|l| l.contains(" loaded into api ")), "{done}");
}

#[test]
fn programs_link_with_the_shared_library() {
    // As installed: by the name that the linker looks for and the one that the loader looks for.
    let installed = tempfile::tempdir().expect("a temporary folder");
    for name in ["libspandrel.so", "libspandrel.so.0"] {
        let link = installed.path().join(name);
        std::os::unix::fs::symlink(subject().required_library(), link).expect("a link");
    }
    let search = format!("-L{}", installed.path().display());
    let rpath = format!("-Wl,-rpath,{}", installed.path().display());
    for (compiler, standard) in [("cc", "-std=c99"), ("cc", "-std=c11"), ("g++", "-std=c++17")] {
        build_and_run(compiler, standard, &[&search, &rpath, "-lspandrel"], |job| job);
    }
}

#[test]
fn programs_link_with_the_static_library() {
    let beside = subject().required_library().with_file_name("libspandrel.a");
    let archive = if beside.is_file() { beside } else { release_dir().join("libspandrel.a") };
    assert!(archive.is_file(), "{} is missing: cargo build --release", archive.display());
    let archive = archive.display().to_string();
    for (compiler, standard) in [("cc", "-std=c11"), ("g++", "-std=c++17")] {
        let link = ["-Wl,--gc-sections", &archive, "-ldl", "-lm"];
        build_and_run(compiler, standard, &link, |job| job);
        build_and_run(compiler, standard, &link, |job| job.env("SPANDREL_MODE", "mmap"));
    }
}
