//! Real programs under the preload library: the same output and exit code as without, in `auto`, in `native`, in
//! the paper's template and in `switch`. Those that take long are run in the first two, and in all by `make soak`. A program that is not installed fails its test: `make setup` installs it.

mod browser;
mod build;
mod compare;
mod jvm_node_go;
mod php;
mod python;
mod redis;
mod rust;
mod shell;
mod world;
