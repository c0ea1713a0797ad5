//! The rewriter that the build script uses, on small objects made by the C compiler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

#[path = "../build/rewrite.rs"]
mod rewrite;

use rewrite::{Member, Plan, Rewritten};

/// A fresh directory for one test.
fn scratch(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Member {
    let c = dir.join(format!("{name}.c"));
    let o = dir.join(format!("{name}.o"));
    std::fs::write(&c, source).unwrap();
    run(compiler().args(["-c", "-fPIC", "-O1"]).args(flags).arg(&c).arg("-o").arg(&o));
    Member { name: format!("{name}.o"), data: std::fs::read(&o).unwrap() }
}

fn private(old: &str) -> String {
    format!("priv_{}", old.strip_prefix("pub_").unwrap_or(old))
}

const PLAN: Plan<'static> = Plan {
    rename: &private,
    hooks: &[("mmap", "priv_hook_mmap"), ("mmap64", "priv_hook_mmap")],
    forbidden: &[],
    required: &[],
};

fn rewrite(members: Vec<Member>) -> Result<Rewritten, String> {
    rewrite::rewrite(members, &PLAN)
}

fn refusal(members: Vec<Member>) -> String {
    match rewrite(members) {
        Ok(_) => panic!("not refused"),
        Err(message) => message,
    }
}

fn sections(member: &Member) -> BTreeSet<String> {
    let file = ElfFile64::<object::Endianness>::parse(&member.data[..]).unwrap();
    file.sections().map(|s| s.name().unwrap().to_string()).collect()
}

const ALLOCATOR: &str = r#"
    #include <stddef.h>
    void *mmap(void *, size_t, int, int, int, long);
    int pub_started;
    int pub_table[4] = { 1, 2, 3, 4 };
    __attribute__((weak)) const char *pub_conf;
    extern int other(int);
    static int twice(int x) { return 2 * x; }
    __attribute__((constructor)) static void start(void) { pub_started = 1; }
    __attribute__((destructor)) static void finish(void) { pub_started = 0; }
    int pub_call(int x) { return other(twice(x)) + pub_started; }
    void *pub_map(void) { return mmap(0, 4096, 3, 0x22, -1, 0); }
    char pub_first(void) { return pub_conf ? pub_conf[0] : '-'; }
"#;
const OTHER: &str = r#"
    extern int pub_table[4];
    int other(int x) { return x + pub_table[3]; }
"#;

fn allocator(dir: &Path, flags: &[&str]) -> Vec<Member> {
    vec![compile(dir, "allocator", ALLOCATOR, flags), compile(dir, "other", OTHER, flags)]
}

#[test]
fn defined_symbols_become_private() {
    let dir = scratch("private");
    let out = rewrite(allocator(&dir, &[])).unwrap();
    for name in ["priv_call", "priv_map", "priv_started", "priv_table", "priv_conf", "priv_other"] {
        assert!(out.defined.contains(name), "{name} in {:?}", out.defined);
    }
    for member in &out.members {
        let file = ElfFile64::<object::Endianness>::parse(&member.data[..]).unwrap();
        for symbol in file.symbols().filter(|s| s.is_global()) {
            let name = symbol.name().unwrap();
            if name.starts_with("priv_") {
                let visibility = symbol.elf_symbol().st_visibility();
                assert_eq!(visibility, object::elf::STV_HIDDEN, "{name}");
            } else {
                assert!(!symbol.is_definition(), "{name}");
            }
        }
    }
}

#[test]
fn mapping_calls_go_to_the_hook() {
    let dir = scratch("hooks");
    let out = rewrite(allocator(&dir, &[])).unwrap();
    assert!(out.undefined.contains("priv_hook_mmap"), "{:?}", out.undefined);
    assert!(!out.undefined.contains("mmap"));
    assert!(!out.undefined.contains("priv_other"), "defined by the other object");
}

#[test]
fn constructors_and_debugging_sections_are_dropped() {
    let dir = scratch("dropped");
    // -g3 describes macros, in section groups.
    let members = allocator(&dir, &["-g3"]);
    assert!(sections(&members[0]).contains(".init_array"));
    assert!(sections(&members[0]).contains(".debug_info"));
    let before: usize = members.iter().map(|m| m.data.len()).sum();
    let out = rewrite(members).unwrap();
    for member in &out.members {
        for name in sections(member) {
            for gone in ["_array", "tors", "debug", ".group"] {
                assert!(!name.contains(gone), "{name}");
            }
        }
    }
    assert!(out.members.iter().map(|m| m.data.len()).sum::<usize>() < before / 4);
}

#[test]
fn the_result_links_and_runs_beside_the_original() {
    let dir = scratch("links");
    let members = allocator(&dir, &["-g3", "-ffunction-sections", "-fdata-sections"]);
    let mut objects: Vec<PathBuf> = members.iter().map(|m| dir.join(&m.name)).collect();
    for member in rewrite(members).unwrap().members {
        let path = dir.join(format!("private-{}", member.name));
        std::fs::write(&path, &member.data).unwrap();
        objects.push(path);
    }
    // The strong definition of the configuration replaces the weak one, of the copy only.
    let main = r#"
        #include <stdio.h>
        extern int pub_call(int), priv_call(int), pub_started, priv_started;
        extern void *priv_map(void);
        extern char pub_first(void), priv_first(void);
        static int page;
        const char *priv_conf = "yes";
        void *priv_hook_mmap(void) { return &page; }
        int main(void) {
            printf("%d %d %d %d %d %c %c\n", pub_call(10), priv_call(10), pub_started, priv_started,
                   priv_map() == &page, pub_first(), priv_first());
            return 0;
        }
    "#;
    std::fs::write(dir.join("main.c"), main).unwrap();
    let program = dir.join("program");
    run(compiler().arg(dir.join("main.c")).args(&objects).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(&program)), "25 24 1 0 1 - y\n");
}

#[test]
fn a_shared_object_exports_nothing_of_it() {
    let dir = scratch("shared");
    let out = rewrite(allocator(&dir, &[])).unwrap();
    let mut objects = Vec::new();
    for member in &out.members {
        let path = dir.join(format!("private-{}", member.name));
        std::fs::write(&path, &member.data).unwrap();
        objects.push(path);
    }
    // The hook has default visibility where it is defined: the references make it hidden.
    let glue = "int face_x; extern int priv_call(int); int face(int x) { return priv_call(x); }\n\
                void *priv_hook_mmap(void) { return 0; }";
    std::fs::write(dir.join("glue.c"), glue).unwrap();
    let library = dir.join("libshared.so");
    run(compiler()
        .args(["-shared", "-fPIC"])
        .arg(dir.join("glue.c"))
        .args(&objects)
        .arg("-o")
        .arg(&library));
    let data = std::fs::read(&library).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&data[..]).unwrap();
    let exported: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(|s| s.is_definition())
        .map(|s| s.name().unwrap().to_string())
        .filter(|s| !s.starts_with('_'))
        .collect();
    assert_eq!(exported, BTreeSet::from(["face".into(), "face_x".into()]));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let dir = scratch("same");
    let once = rewrite(allocator(&dir, &["-g"])).unwrap();
    let dir = scratch("same-elsewhere");
    let again = rewrite(allocator(&dir, &["-g"])).unwrap();
    for (a, b) in once.members.iter().zip(&again.members) {
        assert!(a.data == b.data, "{} differs", a.name);
    }
}

#[test]
fn link_time_optimisation_without_code_is_refused() {
    let dir = scratch("lto");
    let mut flags = vec!["-flto"];
    // Clang knows neither of GCC's two kinds and always writes bitcode.
    if run(compiler().arg("--version")).contains("Free Software Foundation") {
        flags.push("-fno-fat-lto-objects");
    }
    let message = refusal(allocator(&dir, &flags));
    assert!(message.contains("allocator.o") && message.contains("-flto"), "{message}");

    let bitcode = Member { name: "bitcode.o".into(), data: b"BC\xc0\xde and more".to_vec() };
    assert!(refusal(vec![bitcode]).contains("bitcode"));
}

#[test]
fn link_time_optimisation_data_beside_code_is_dropped() {
    if !run(compiler().arg("--version")).contains("Free Software Foundation") {
        return;
    }
    let dir = scratch("fat-lto");
    let members = allocator(&dir, &["-flto", "-ffat-lto-objects"]);
    assert!(sections(&members[0]).iter().any(|s| s.starts_with(".gnu.lto_")));
    let out = rewrite(members).unwrap();
    assert!(!sections(&out.members[0]).iter().any(|s| s.starts_with(".gnu.lto_")));
}

#[test]
fn names_that_would_collide_are_refused() {
    let dir = scratch("collide");
    let one = compile(&dir, "one", "int pub_same(void) { return 1; }", &[]);
    let two = compile(&dir, "two", "int same(void) { return 2; }", &[]);
    let message = refusal(vec![one.clone(), two]);
    assert!(
        message.contains("`pub_same`")
            && message.contains("`same`")
            && message.contains("`priv_same`"),
        "{message}"
    );
    let message = refusal(vec![one.clone(), one]);
    assert!(message.contains("is defined by"), "{message}");
}

#[test]
fn weak_definitions_may_repeat() {
    let dir = scratch("weak");
    let source = "__attribute__((weak)) int pub_maybe(void) { return 1; }";
    let members = vec![compile(&dir, "one", source, &[]), compile(&dir, "two", source, &[])];
    assert!(rewrite(members).is_ok());
}

#[test]
fn groups_of_code_are_refused() {
    let dir = scratch("group");
    let source = "__asm__(\".section .text.shared,\\\"axG\\\",@progbits,shared,comdat\\n\"\
                  \".weak shared\\nshared: ret\\n.text\\n\");";
    let message = refusal(vec![compile(&dir, "group", source, &[])]);
    assert!(message.contains(".text.shared"), "{message}");
}

#[test]
fn what_the_plan_demands_is_checked() {
    let dir = scratch("demands");
    let missing = Plan { required: &["priv_call", "priv_absent"], ..PLAN };
    let message = rewrite::rewrite(allocator(&dir, &[]), &missing).err().unwrap();
    assert!(message.contains("`priv_absent`"), "{message}");
    let stray = Plan { hooks: &[], forbidden: &[("mmap", "it maps")], ..PLAN };
    let message = rewrite::rewrite(allocator(&dir, &[]), &stray).err().unwrap();
    assert!(message.contains("`mmap`: it maps"), "{message}");
}

#[test]
fn only_objects_and_archives_are_taken() {
    let dir = scratch("foreign");
    let text = Member { name: "x.o".into(), data: b"hello".to_vec() };
    assert!(refusal(vec![text]).contains("x.o: not a 64-bit ELF object"));
    assert!(rewrite::archive_members(b"hello").is_err());

    std::fs::write(dir.join("main.c"), "int main(void) { return 0; }").unwrap();
    let program = dir.join("program");
    run(compiler().arg(dir.join("main.c")).arg("-o").arg(&program));
    let data = std::fs::read(&program).unwrap();
    let message = refusal(vec![Member { name: "program".into(), data }]);
    assert!(message.contains("not a relocatable object"), "{message}");
}

#[test]
fn an_archive_is_split_into_its_members() {
    let dir = scratch("archive");
    let members = allocator(&dir, &[]);
    let library = dir.join("liballocator.a");
    run(Command::new("ar")
        .arg("crs")
        .arg(&library)
        .args(members.iter().map(|m| dir.join(&m.name))));
    let found = rewrite::archive_members(&std::fs::read(&library).unwrap()).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found[0].name == "allocator.o" && found[0].data == members[0].data);
}

#[test]
fn damaged_objects_are_errors_and_never_panics() {
    let dir = scratch("damaged");
    let good = compile(&dir, "allocator", ALLOCATOR, &["-g3"]);
    let mut seed = 1u64;
    for round in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (seed >> 33) as usize % good.data.len();
        let mut data = good.data.clone();
        if round % 2 == 0 {
            data.truncate(at);
        } else {
            // Mostly the tables at the end of the file, where most fields matter.
            let at = if round % 4 == 1 { at } else { data.len() - 1 - at % 4096 };
            data[at] ^= 1 << (seed >> 20 & 7);
        }
        let _ = rewrite(vec![Member { name: "damaged.o".into(), data }]);
    }
}
