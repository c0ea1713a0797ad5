//! Compiles the commands in C: as they are, and with the compiler's hooks.

const SOURCE: &str = "src/capture/commands.c";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    let build = || {
        let mut build = cc::Build::new();
        // The measured code is optimised in any build, and the hooks see no fortified function.
        build.file(SOURCE).opt_level(2).flag("-U_FORTIFY_SOURCE").warnings(true);
        build
    };
    build().compile("spandrel_commands_native");
    let mut hooked = build();
    hooked.flag("-fsanitize=thread").flag("-fno-builtin").define("HOOKED", None);
    hooked.compile("spandrel_commands_hooked");
}
