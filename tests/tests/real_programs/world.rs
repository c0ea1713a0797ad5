//! `spandrel bench world`, with the programs that are here.

use spandrel_tests::subject::spandrel_command;
use std::process::Command;

#[test]
fn programs_are_measured_with_all_their_processes_and_print_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("world.json");
    let done = Command::new(spandrel_command())
        .args([
            "bench",
            "world",
            "--quick",
            "--runs",
            "1",
            "--only",
            "php,node",
            "--peers",
            "sys-hugetlb",
            "--json",
        ])
        .arg(&json)
        .output()
        .expect("the command");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(&json).expect("the figures");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let programs = report["suites"][0]["data"].as_array().expect("programs");
    assert_eq!(programs.len(), 2, "{said}");
    for program in programs {
        assert_eq!(program["same_output"], true, "{said}");
        let allocators = program["allocators"].as_array().expect("allocators");
        assert_eq!(allocators.len(), 3, "{said}");
        for one in allocators {
            for key in ["cpu_ns", "peak_rss", "rested_rss"] {
                assert!(
                    one[key]["median"].as_f64().is_some_and(|median| median > 0.0),
                    "{key}: {said}"
                );
            }
        }
    }
}
