//! `libspandrel_heap`: C and C++ programs whose objects outlive them, also when they are killed.

use std::path::{Path, PathBuf};

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, built, compile};
use spandrel_tests::subject;

#[test]
fn a_list_of_addresses_outlives_killed_processes() {
    for medium in ["mapped", "logged"] {
        let program = Program::new("heap_list.c");
        program.is_killed(&[medium, "fill"]);
        program.is_killed(&[medium, "more"]);
        program.ends_well(&[medium, "offline"]);
        program.ends_well(&[medium, "verify"]);
    }
}

#[test]
fn errors_have_the_path_the_reason_and_the_way_out() {
    Program::new("heap_errors.c").ends_well(&[]);
}

#[test]
fn words_lead_to_objects_wherever_the_heap_is() {
    let program = Program::new("heap_offsets.c");
    program.is_killed(&["fill"]);
    program.ends_well(&["verify"]);
}

#[test]
fn types_say_where_pointers_are() {
    let program = Program::new("heap_traced.c");
    program.is_killed(&["fill"]);
    program.ends_well(&["open"]);
    program.is_killed(&["fill"]);
    program.ends_well(&["offline"]);
    program.is_killed(&["fixed"]);
    program.ends_well(&["addresses"]);
}

#[test]
fn named_roots_have_types_and_several_are_set_at_once() {
    let program = Program::new("heap_named.c").with_heaps_in(Path::new("/dev/shm"));
    program.is_killed(&["fill"]);
    program.ends_well(&["open"]);
    program.ends_well(&["torn"]);
}

#[test]
fn objects_are_resized_and_wrong_frees_refused() {
    Program::new("heap_objects.c").ends_well(&[]);
}

#[test]
fn the_heap_lies_beside_another_malloc() {
    let program = Program::new("heap_objects.c");
    for mode in subject().modes(&["native", "auto"]) {
        let heap = program.heaps().join(mode);
        subject().job(program.path(), mode).arg(heap).run().expect_ok();
    }
}

#[test]
fn frees_wait_for_a_commit() {
    Program::new("heap_callback.c").ends_well(&[]);
}

#[test]
fn children_of_a_fork_are_refused() {
    Program::new("heap_fork.c").ends_well(&[]);
}

#[test]
fn a_program_of_makalu_runs() {
    let on_disk = Program::new("heap_makalu.c");
    let in_memory = Program::new("heap_makalu.c").with_heaps_in(Path::new("/dev/shm"));
    for program in [on_disk, in_memory] {
        program.is_killed(&["start"]);
        program.ends_well(&["off"]);
        program.ends_well(&["restart"]);
    }
}

#[test]
fn cpp_programs_use_the_headers() {
    Program::new("heap_cpp.cc").ends_well(&[]);
}

/// Where heaps lie in the memory of the machine, and on its disk.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

#[test]
fn a_list_of_the_wrapper_is_whole_whenever_its_process_is_killed() {
    for place in places() {
        let program = Program::new("heap_wrapper.cc").with_heaps_in(&place);
        for milliseconds in [2, 5, 10, 20, 30, 50, 80] {
            program.is_killed(&["churn", &format!("{}", milliseconds * 1000)]);
            program.ends_well(&["verify"]);
        }
    }
}

#[test]
fn the_wrapper_moves_closes_and_says_why_it_fails() {
    for place in places() {
        Program::new("heap_wrapper.cc").with_heaps_in(&place).ends_well(&["closed"]);
        Program::new("heap_wrapper.cc").with_heaps_in(&place).ends_well(&["errors"]);
    }
}

#[test]
fn the_wrapper_needs_no_exceptions() {
    let source = abi_dir().join("heap_wrapper_plain.cc");
    Program::with(&source, &["-fno-exceptions", "-fno-rtti", "-pedantic"]).ends_well(&[]);
}

#[test]
fn the_wrapper_compiles_without_warnings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let alone = folder.path().join("alone.cc");
    let text = "#include <spandrel_heap.hpp>\n#include <spandrel_heap.hpp>\nint main() {}\n";
    std::fs::write(&alone, text).expect("write");
    let wrapper = abi_dir().join("heap_wrapper.cc");
    for compiler in ["g++", "clang++"] {
        for standard in ["-std=c++17", "-std=c++20"] {
            for source in [&alone, &wrapper] {
                let source = source.display().to_string();
                let flags = ["-fsyntax-only", "-pedantic", "-Wconversion", "-Wshadow"];
                compile(compiler, &[&flags[..], &[standard, &source]].concat());
            }
        }
    }
}

#[test]
fn programs_link_with_the_archive() {
    let archive = built("libspandrel_heap.a").display().to_string();
    for file in ["heap_objects.c", "heap_cpp.cc"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Program::linked(file, folder, &["-Wl,--gc-sections", &archive]).ends_well(&[]);
    }
}

#[test]
fn both_archives_go_into_one_program() {
    let (heap, malloc) = (built("libspandrel_heap.a"), built("libspandrel.a"));
    let (heap, malloc) = (heap.display().to_string(), malloc.display().to_string());
    for archives in [[&heap, &malloc], [&malloc, &heap]] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = ["-Wl,--gc-sections", archives[0], archives[1], "-ldl", "-lm"];
        Program::linked("heap_and_malloc.c", folder, &link).ends_well(&[]);
    }
}

#[test]
fn the_headers_stand_alone_in_every_language() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for header in ["spandrel_heap.h", "makalu.h"] {
        let (c, cpp) = (folder.path().join("alone.c"), folder.path().join("alone.cc"));
        // Twice, as nothing but an include guard allows it.
        let text =
            format!("#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n");
        std::fs::write(&c, &text).expect("write");
        std::fs::write(&cpp, &text).expect("write");
        let (c, cpp) = (c.display().to_string(), cpp.display().to_string());
        let strict = ["-fsyntax-only", "-pedantic", "-Wconversion"];
        for standard in ["-std=c99", "-std=c11", "-std=c17"] {
            compile("cc", &[&strict[..], &[standard, "-Wstrict-prototypes", &c]].concat());
        }
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            compile("g++", &[&strict[..], &[standard, &cpp]].concat());
        }
    }
}
