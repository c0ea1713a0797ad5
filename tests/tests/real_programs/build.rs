//! Compilers and make.

use crate::compare::{Run, account, heavy, loads_into, program_file, same_in_main_modes};

#[test]
fn gxx_with_heavy_templates() {
    let _alone = heavy();
    loads_into("g++", &["--version"]);
    same_in_main_modes(|run| {
        let source = program_file("templates.cc");
        let compile = |output: &str, more: &[&str]| {
            let job = run.job("g++").args(["-std=c++17", "-O1", "-frandom-seed=1"]);
            account(&job.args(more).arg("-o").arg(output).arg(&source).run(), 0)
        };
        let mut text = compile("templates.s", &["-S"]);
        text += &compile("templates", &["-pthread"]);
        text += &account(&run.shell("sh", "sha256sum templates.s; ./templates; exit $?"), 9);
        // A program that does not compile: diagnostics take memory too, and the code is the compiler's.
        text += &account(
            &run.job("g++").args(["-std=c++17", "-fsyntax-only", "-DBROKEN"]).arg(&source).run(),
            1,
        );
        text
    });
}

#[test]
fn gcc_with_link_time_optimization() {
    let _alone = heavy();
    loads_into("gcc", &["--version"]);
    same_in_main_modes(|run| {
        project(run);
        let build = "gcc -flto=2 -O2 -frandom-seed=1 -o program *.c && ./program";
        account(&run.shell("sh", build), 0)
    });
}

/// A few dozen C files and a makefile.
fn project(run: &Run<'_>) {
    const FILES: usize = 40;
    let write = |name: String, text: String| {
        std::fs::write(run.folder().join(name), text).expect("write a source file");
    };
    let mut main = String::from("#include <stdio.h>\n");
    let mut sum = String::from("0ul");
    for n in 0..FILES {
        let text = format!(
            "#include <stdlib.h>\n#include <string.h>\nunsigned long f{n}(unsigned long x) {{\n  \
             unsigned long *a = malloc(1000 * sizeof *a), s = {n};\n  for (int i = 0; i < 1000; i++) a[i] = x \
             * i + {n};\n  for (int i = 0; i < 1000; i++) s = s * 31 + a[i];\n  free(a);\n  return s;\n}}\n"
        );
        write(format!("f{n}.c"), text);
        main += &format!("unsigned long f{n}(unsigned long);\n");
        sum += &format!(" + f{n}({n})");
    }
    main += &format!("int main(void) {{ printf(\"%lu\\n\", {sum}); return 0; }}\n");
    write("main.c".into(), main);
    let objects: Vec<String> = (0..FILES).map(|n| format!("f{n}.o")).collect();
    write(
        "Makefile".into(),
        format!(
            "program: main.o {}\n\tgcc -o $@ $^\n%.o: %.c\n\t@gcc -O1 -c -o $@ $<\nclean:\n\trm -f *.o program\n",
            objects.join(" ")
        ),
    );
}

#[test]
fn make_with_two_jobs() {
    let _alone = heavy();
    loads_into("make", &["--version"]);
    same_in_main_modes(|run| {
        project(run);
        let script = "make -s -j2 && ./program && touch f7.c && make -n | wc -l && make -s clean && ls; make nothing";
        account(&run.shell("sh", script), 2)
    });
}
