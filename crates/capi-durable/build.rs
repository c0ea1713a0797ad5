//! Names the shared library's interface version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that link with the library ask for this name at run time; it
    // changes only with an incompatible change of the C interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libspandrel_durable.so.0");
    // Threads of open states and callers of the hooks point into the library: it
    // cannot go while the process lives.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
