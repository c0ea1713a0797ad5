//! Files that the loader binds to the C library before the program: plug-ins opened with `RTLD_DEEPBIND`, and
//! functions that are looked up by the handle of a file.

use spandrel_tests::abi::compile;
use spandrel_tests::subject::ALL_MODES;
use spandrel_tests::{Program, Source, installed, subject};

#[test]
fn a_plugin_that_is_bound_to_the_c_library_first() {
    let program = Program::with(&Source { file: "deepbind.c", flags: &["-rdynamic"] });
    let plugin = program.folder().join("libplugin.so");
    compile(&Source { file: "deepbind_lib.c", flags: &["-shared", "-fPIC"] }, &plugin);
    program.run_each(ALL_MODES, |job| job.arg(&plugin));
    // The flag is not heeded then.
    program.run_each(&["native", "sys", "auto"], |job| job.arg(&plugin).arg("sealed"));
}

#[test]
fn functions_by_the_handle_of_a_file() {
    Program::new("libc_handle.c").run_in_all_modes();
}

/// `ctypes` finds the functions by such a handle.
#[test]
fn a_binding_to_the_c_library_in_python() {
    const SCRIPT: &str = "import ctypes
kept = [bytes(500) * i for i in range(2000)]
libc = ctypes.CDLL('libc.so.6')
libm = ctypes.CDLL('libm.so.6')
libc.strdup.restype = libc.malloc.restype = ctypes.c_void_p
for library in libc, libm:
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
    for text in b'text', b'x' * 100000:
        library.free(libc.strdup(text))
        library.free(libc.malloc(len(text)))
print('ok')";
    for mode in subject().modes(ALL_MODES) {
        let done = subject().job(installed("python3"), mode).args(["-c", SCRIPT]).run().expect_ok();
        assert_eq!(done.out(), "ok\n", "mode {mode}: {done}");
    }
}
