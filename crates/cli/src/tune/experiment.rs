//! The experiment over a fleet that a profile's host takes part in, as its label. The runs that are measured do not:
//! each is in the mode that is measured.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use spandrel_policy::Experiment;

use spandrel_console::Failure;

/// `NAME control` or `NAME variant`, as the library decides for the program on this host; `None`: there is no experiment
/// in the environment.
///
/// # Errors
/// What is there is none.
pub fn label(program: &Path) -> Result<Option<String>, Failure> {
    let text = std::env::var_os("SPANDREL_EXPERIMENT").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let id = std::fs::read("/etc/machine-id").unwrap_or_default();
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = [&id, &name].into_iter().map(|bytes| bytes.trim_ascii()).find(|id| !id.is_empty());
    labelled(&text.to_string_lossy(), host.unwrap_or_default(), program).map(Some)
}

fn labelled(text: &str, host: &[u8], program: &Path) -> Result<String, Failure> {
    let refuse = |why| Failure::refused(format!("SPANDREL_EXPERIMENT in the environment: {why}"));
    let experiment = Experiment::parse(text).map_err(refuse)?;
    let program = program.file_name().unwrap_or_default();
    let is_variant = experiment.is_variant(host, program.as_bytes());
    let group = if is_variant { "variant" } else { "control" };
    Ok(format!("{} {group}", experiment.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_names_the_group() {
        let of = |text: &str| labelled(text, b"host", Path::new("/bin/x"));
        assert_eq!(of("lazy:100").ok().as_deref(), Some("lazy variant"));
        assert_eq!(of("lazy:0,mode=native").ok().as_deref(), Some("lazy control"));
        let failure = of("lazy").unwrap_err();
        assert!(failure.code == 2 && failure.message.contains("SPANDREL_EXPERIMENT"));
    }
}
