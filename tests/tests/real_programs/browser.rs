//! Chromium: an allocator of its own, under glibc's internal names, in several processes that it forks.

use std::time::Duration;

use crate::compare::{heavy, program_file, same_in_main_modes};

/// Not every distribution has it as a package.
fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("chromium").is_file())
}

#[test]
fn chromium() {
    if !is_installed() {
        println!("there is no chromium here: nothing is tested");
        return;
    }
    let _alone = heavy();
    let page = format!("file://{}", program_file("page.html").display());
    let headless = ["--headless", "--no-sandbox", "--disable-gpu"];
    same_in_main_modes(|run| {
        let version = run.job("chromium").args(headless).arg("--version").run();
        let job = run.job("chromium").args(headless).args(["--dump-dom", &page]);
        let dumped = job.timeout(Duration::from_secs(120)).memory_cap(16 << 30).run();
        assert!(version.code == Some(0) && dumped.code == Some(0), "{version}\n{dumped}");
        assert!(dumped.out().contains("after 1000 1572864"), "{dumped}");
        version.out() + &dumped.out()
    });
}
