//! Names the shared library's interface version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libspandrel_program.so.0");
    // Functions of the program lead into it: it cannot go while the process lives.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
