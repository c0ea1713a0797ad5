//! What the build script does to C++ before it is made private, on a small example.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

#[path = "../build/prune.rs"]
mod prune;
#[path = "../build/rewrite.rs"]
#[allow(dead_code)]
mod rewrite;

use prune::prune;
use rewrite::{Member, Plan};

fn scratch(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prune").join(test);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn compiler(variable: &str, usual: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| usual.into()))
}

const SOURCE: &str = r#"
    struct Absent { Absent(); ~Absent(); };
    static Absent constructed;
    Absent *unreached() { return new Absent; }
    template <typename T> struct Counter {
        static T count;
        __attribute__((noinline)) static T next(T by) { static T last; last += by; count++; return last; }
    };
    template <typename T> T Counter<T>::count = 10;
    struct Base { virtual int name() { return 1; } };
    struct Derived : Base { int name() override; };
    __attribute__((noinline)) int Derived::name() { return Counter<int>::next(2); }
    static Derived derived;
    Base *volatile base = &derived;
    extern "C" int host_go(int by) {
        Counter<int>::next(by);
        int name = base->name();
        return 100 * Counter<int>::count + name;
    }
"#;

fn compile(dir: &Path) -> Member {
    let (source, object) = (dir.join("example.cc"), dir.join("example.o"));
    std::fs::write(&source, SOURCE).unwrap();
    run(compiler("CXX", "c++")
        .args(["-c", "-fPIC", "-O1", "-ffunction-sections", "-fdata-sections"])
        .args(["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"])
        .args(["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"])
        .arg(&source)
        .arg("-o")
        .arg(&object));
    Member { name: "example.o".into(), data: std::fs::read(&object).unwrap() }
}

#[test]
fn only_what_is_reached_is_left() {
    let whole = compile(&scratch("reached"));
    let pruned = prune(&whole, &["host_go"]).unwrap();
    assert!(pruned.data.len() < whole.data.len());
    let file = ElfFile64::<object::Endianness>::parse(&pruned.data[..]).unwrap();
    for section in file.sections() {
        let name = section.name().unwrap();
        assert!(!name.contains("_array") && !name.contains("unreached"), "{name}");
        assert!(!name.contains("group"), "{name}");
    }
    let undefined: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| !name.is_empty() && *name != "_GLOBAL_OFFSET_TABLE_")
        .collect();
    assert!(undefined.is_empty(), "no runtime is needed: {undefined:?}");
}

#[test]
fn the_result_can_be_made_private_and_runs() {
    let dir = scratch("runs");
    let pruned = prune(&compile(&dir), &["host_go"]).unwrap();
    let private = |old: &str| format!("priv_{old}");
    let plan = Plan { rename: &private, hooks: &[], forbidden: &[], required: &["priv_host_go"] };
    let out = rewrite::rewrite(vec![pruned], &plan).unwrap();
    let object = dir.join("private.o");
    std::fs::write(&object, &out.members[0].data).unwrap();
    let main = dir.join("main.c");
    let program = "#include <stdio.h>\nint priv_host_go(int);\n\
                   int main(void) { printf(\"%d\\n\", priv_host_go(5)); return 0; }\n";
    std::fs::write(&main, program).unwrap();
    let program = dir.join("program");
    // Linked as C: there is no C++ runtime.
    run(compiler("CC", "cc").arg(&main).arg(&object).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(&program)), "1207\n");
}

#[test]
fn an_unknown_root_is_refused() {
    let whole = compile(&scratch("unknown"));
    let message = prune(&whole, &["host_go", "host_absent"]).err().unwrap();
    assert!(message.contains("`host_absent`"), "{message}");
}

#[test]
fn damaged_objects_are_errors_and_never_panics() {
    let good = compile(&scratch("damaged"));
    let mut seed = 1u64;
    for round in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut data = good.data.clone();
        let at = (seed >> 33) as usize % data.len();
        if round % 2 == 0 {
            data.truncate(at);
        } else {
            data[at] ^= 1 << (seed >> 20 & 7);
        }
        let _ = prune(&Member { name: "damaged.o".into(), data }, &["host_go"]);
    }
}
