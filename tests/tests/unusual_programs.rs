//! Programs that are built or started in unusual ways: with a sanitizer, linked whole, with a second C library, as
//! another user.

use std::os::unix::fs::PermissionsExt;

use spandrel_tests::abi::compile;
use spandrel_tests::subject::{ALL_MODES, spandrel_command};
use spandrel_tests::{Job, Program, Source, installed, subject};

/// A sanitizer's allocator is the program's own, and goes on finding what is wrong.
#[test]
fn sanitizers() {
    for (flag, library) in [("address", "-static-libasan"), ("thread", "-static-libtsan")] {
        let flag = format!("-fsanitize={flag}");
        let program = Program::with(&Source { file: "sanitized.c", flags: &[&flag, library] });
        for mode in subject().modes(ALL_MODES) {
            let done = subject().job(program.path(), mode).run().expect_ok();
            assert_eq!(done.out(), "ok\n", "{flag}, mode {mode}: {done}");
            let wrong = subject().job(program.path(), mode).arg("wrong").run();
            let is_found = wrong.err().contains("heap-use-after-free");
            assert!(is_found && wrong.code != Some(0), "{flag}, mode {mode}: {wrong}");
        }
    }
}

/// The loader then keeps less storage of threads for preloaded libraries than the hosted allocators have. A
/// tunable makes it keep more; the command sets it.
#[test]
fn a_program_that_is_audited() {
    let program = Program::new("memchecked.c");
    let audit = program.folder().join("libaudit.so");
    compile(&Source { file: "audit_lib.c", flags: &["-shared", "-fPIC"] }, &audit);
    for mode in subject().modes(ALL_MODES) {
        let job = subject().job(program.path(), mode).env("LD_AUDIT", &audit);
        job.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=4096").run().expect_ok();
    }
    let library = subject().required_library();
    let job = Job::new(spandrel_command()).args(["run", "--lib"]).arg(library).arg("--");
    job.arg(program.path()).env("LD_AUDIT", &audit).run().expect_ok();
}

/// Nothing can be preloaded into it.
#[test]
fn a_program_that_is_linked_whole() {
    let program = Program::with(&Source { file: "sanitized.c", flags: &["-static-pie"] });
    for mode in subject().modes(ALL_MODES) {
        let done = subject().job(program.path(), mode).run().expect_ok();
        assert_eq!(done.out(), "ok\n", "mode {mode}: {done}");
    }
}

#[test]
fn a_library_in_a_namespace_of_its_own() {
    let library = Source { file: "namespace_lib.c", flags: &[] };
    let program = Program::with_libraries(&Source { file: "namespace.c", flags: &[] }, &[library]);
    let path = program.folder().join("libnamespace_lib.so");
    program.run_each(ALL_MODES, |job| job.arg(&path));
}

#[test]
fn another_user_with_threads_and_a_namespace_of_users() {
    let program = Program::new("identity.c");
    for way in ["user", "namespace"] {
        program.run_each(ALL_MODES, |job| job.arg(way));
    }
}

/// The loader preloads nothing for a program with more rights than its user has.
#[test]
fn a_program_with_more_rights_than_its_user() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("only root can make such a program");
        return;
    }
    let program = Program::new("identity.c");
    let allow = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    allow(program.folder(), 0o755);
    allow(program.path(), 0o4755);
    for mode in subject().modes(ALL_MODES) {
        let job = subject().job(installed("setpriv"), mode);
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let done = job.args(user).arg(program.path()).arg("rights").run().expect_ok();
        // Not where the file system gives no rights.
        assert!(["secure\nok\n", "not secure\nok\n"].contains(&done.out().as_str()), "{done}");
    }
    Job::new(program.path()).arg("rights").run().expect_ok();
}

/// What a library of the program's has in its own hands it may do with memory, and with variables that only threads of the program have.
#[test]
fn a_program_with_clocks_and_system_calls_of_its_own() {
    let program = Program::with(&Source { file: "own_calls.c", flags: &["-rdynamic"] });
    program.run_each(&["auto", "native", "mmap"], |job| job);
}
