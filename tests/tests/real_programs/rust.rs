//! The Rust compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_tests::{installed, subject};

use crate::compare::{Run, account, heavy, same_in_main_modes};

/// The compiler that `cargo` uses, with a `main` of our own: the one it comes with has an allocator in it, which no
/// other could take the place of.
fn relinked(folder: &Path) -> PathBuf {
    let printed =
        Command::new(installed("rustc")).args(["--print", "sysroot"]).output().expect("run rustc");
    let libraries = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim()).join("lib");
    let driver = std::fs::read_dir(&libraries)
        .expect("the compiler's libraries")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains("librustc_driver-"))
        .expect("the compiler's driver");
    let names = Command::new("nm").arg("-D").arg(&driver).output().expect("run nm");
    let names = String::from_utf8_lossy(&names.stdout);
    let main = names
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .find(|name| name.ends_with("rustc_driver_impl4main"))
        .expect("the driver's main");
    let source = folder.join("main.c");
    let text =
        format!("extern unsigned char {main}(void);\nint main(void) {{ return {main}(); }}\n");
    std::fs::write(&source, text).expect("write a source file");
    let program = folder.join("rustc");
    let linked = Command::new(installed("cc"))
        .args([&source, &driver])
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("run cc");
    assert!(linked.success());
    program
}

/// A crate of this project and what it depends on, in as many pieces as `cargo` likes; the same bytes come out.
#[test]
fn rustc_building_a_crate() {
    let _alone = heavy();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let compiler = relinked(folder.path());
    let version = |run: &Run<'_>| {
        run.job(compiler.to_str().expect("a path")).arg("-vV").env("SPANDREL_VERBOSE", "1").run()
    };
    if subject().is_spandrel() {
        let done = version(&Run::new(Some("native"))).expect_ok();
        assert!(done.err().contains("loaded into rustc"), "{done}");
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
    // Always the same: some crates hold its name.
    let target = folder.path().join("target");
    same_in_main_modes(|run| {
        let _ = std::fs::remove_dir_all(&target);
        // What cargo itself needs is where the user has it.
        let inherited = |name: &str, or: &str| {
            std::env::var_os(name).unwrap_or_else(|| {
                Path::new(&std::env::var_os("HOME").expect("a home")).join(or).into()
            })
        };
        let job = run
            .job("cargo")
            .dir(project)
            .args(["build", "--quiet", "--locked", "--offline", "--release", "-p", "spandrel-sim"])
            .env("CARGO_HOME", inherited("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", inherited("RUSTUP_HOME", ".rustup"))
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTC", &compiler);
        let built = account(&job.run(), 0);
        let sums = run.job("sh").dir(target.join("release/deps")).args(["-c", "sha256sum *.rlib"]);
        built + &account(&sums.run(), 0)
    });
}
