//! The machine that figures are of.

use serde::Serialize;
use spandrel_os::vm::{HugePages, huge_pages};
use spandrel_report::numbers::counted;

/// What figures depend on.
#[derive(Serialize)]
pub struct Machine {
    /// The model of its processors.
    pub cpu: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// What programs get huge pages: `always`, `madvise`, `never`.
    pub transparent_hugepages: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
        };
        let meminfo = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        // As the library asks, which compares.
        let chosen = match huge_pages() {
            HugePages::Never => "never",
            HugePages::Advised => "madvise",
            HugePages::Always => "always",
        };
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_kib: meminfo.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            transparent_hugepages: chosen.into(),
        }
    }

    /// What others of its kind have in common with it.
    pub fn kind(&self) -> String {
        let Self { cpu, cores, transparent_hugepages, .. } = self;
        let cores = counted(*cores as u64, "core", "cores");
        format!("{cpu}, {cores}, huge pages: {transparent_hugepages}")
    }
}
