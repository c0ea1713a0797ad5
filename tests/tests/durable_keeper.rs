//! A library whose variable leads to an object of a command: it is named, once, and what may be so is not.

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, compile};

#[test]
fn a_library_that_keeps_an_object_of_a_command_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("libkeeper.so");
    let (source, library) = (abi_dir().join("durable_keeper_lib.c"), library.to_str().unwrap());
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libkeeper.so", "-o", library];
    compile("cc", &[&flags[..], &[source.to_str().unwrap()]].concat());
    let path = format!("-Wl,-rpath,{}", folder.path().display());
    let program = Program::durable(&abi_dir().join("durable_keeper.c"), &[library, &path]);
    let said = |what: &str| {
        let done = program.job(&[what]).run();
        assert_eq!(done.code, Some(0), "{what}: {done}");
        std::fs::remove_dir_all(program.heaps().join("heap")).unwrap();
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let undone = said("undone");
    assert_eq!(undone.matches("a library keeps").count(), 1, "{undone}");
    assert!(undone.contains("libkeeper.so+0x") && undone.contains(", keeper_cache)"), "{undone}");
    assert!(undone.contains("that is gone since the command was undone"), "{undone}");
    let thread = said("thread");
    assert!(thread.contains("a variable of the thread at 0x"), "{thread}");
    assert!(thread.contains("libkeeper.so)"), "{thread}");
    let stdio = said("stdio");
    assert!(stdio.contains("libc.so.6+0x") && stdio.contains(", _IO_2_1_stdout_+0x"), "{stdio}");
    for what in ["outside", "taken", "text"] {
        assert_eq!(said(what), "", "{what}");
    }
}
