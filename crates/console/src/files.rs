//! Files that the command reads and writes: what cannot be written is refused before any work is done, and what is read has an end.

use crate::Failure;
use crate::say;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What plots are written as.
const PLOT: &str = "svg";

/// A file to write, and the option that names it.
pub type Output<'a> = (&'a str, Option<&'a Path>);

/// Reads a file of at most `most` bytes. A device or a pipe may have no end: no more than that is read of it.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let why = format!("larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Whether a file is standard output.
pub fn is_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses files that cannot be written, that are named twice, or that are read. What is there stays
/// until there is something new, and what is not is not made yet. Where `-` is one of them, text goes to standard error from
/// here on.
pub fn check(outputs: &[Output<'_>], inputs: &[PathBuf]) -> Result<(), Failure> {
    let named: Vec<(&str, &Path)> =
        outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (at, (option, path)) in named.iter().enumerate() {
        let place = place(path);
        let is_there = |other: &&Path| self::place(other) == place;
        if inputs.iter().map(PathBuf::as_path).any(|input| is_there(&input)) {
            let path = path.display();
            return Err(Failure::refused(format!(
                "{option}: '{path}' is the file that is read; name another"
            )));
        }
        if let Some((first, _)) = named.iter().take(at).find(|(_, other)| is_there(other)) {
            return Err(Failure::refused(format!(
                "{first} and {option} name the same file; name two"
            )));
        }
    }
    if named.iter().any(|(_, path)| is_output(path)) {
        say::take_output();
    }
    named.iter().filter(|(_, path)| !is_output(path)).try_for_each(|(_, path)| check_writable(path))
}

/// Refuses the name of a plot that would not say what is in it.
pub fn check_plot(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    match path.filter(|path| !is_plot(path)) {
        None => Ok(()),
        Some(path) => Err(Failure::refused(format!(
            "{option}: '{}': plots are written as SVG; name a file that ends in .{PLOT}",
            path.display()
        ))),
    }
}

/// Whether this is the name of a plot.
pub fn is_plot(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(PLOT))
}

/// Writes a file, or says why not; `-` is standard output.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if is_output(path) {
        return say::file(text.strip_suffix('\n').unwrap_or(text));
    }
    or_removed(path, || std::fs::write(path, text)).map_err(|why| not_written(path, &why))
}

/// Writes a file by `fill`. Where that fails, a file that was not there before is removed: a part of it is of no use.
pub fn or_removed<T, E>(path: &Path, fill: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let was_there = path.metadata().is_ok();
    fill().inspect_err(|_| {
        if !was_there {
            let _ = std::fs::remove_file(place(path));
        }
    })
}

/// Why a file could not be written.
pub fn not_written(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("{}: {why}; name a file that can be written", path.display()))
}

fn check_writable(path: &Path) -> Result<(), Failure> {
    // Through a link: what it leads to. A pipe has a reader, which a look would let go.
    let found = path.metadata();
    if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    let was_there = found.is_ok();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|why| not_written(path, &why))?;
    if was_there {
        return Ok(());
    }
    std::fs::remove_file(place(path)).map_err(|why| not_written(path, &why))
}

/// Where a path leads, whether there is a file or not.
fn place(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let in_parent = || {
        let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(parent.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_parent).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(outputs: &[Output<'_>], inputs: &[PathBuf]) -> String {
        let failure = check(outputs, inputs).expect_err("it should be refused");
        assert_eq!(failure.code, 2);
        failure.message
    }

    #[test]
    fn what_has_no_end_is_read_to_a_limit() {
        let why = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(why.to_string(), "larger than 1048576 bytes");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert!(read(&file, 4).is_err() && read(directory.path(), 4).is_err());
    }

    #[test]
    fn no_part_of_a_new_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new"), directory.path().join("old"));
        std::fs::write(&old, "kept").unwrap();
        for path in [&new, &old] {
            let fill = || {
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path)
                    .and(Err(io::Error::other("full")))
            };
            let done: io::Result<()> = or_removed(path, fill);
            assert!(done.is_err());
        }
        assert!(!new.exists() && old.exists());
    }

    #[test]
    fn what_would_be_lost_is_refused_whatever_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let (there, input) = (here.join("there"), here.join("input"));
        std::fs::write(&there, "kept").unwrap();
        std::fs::write(&input, "read").unwrap();
        let other = here.join(".").join("input");
        let message = refused(&[("--json", Some(&other))], std::slice::from_ref(&input));
        assert!(message.contains("--json: ") && message.contains("that is read"), "{message}");
        let (new, same) = (here.join("new"), here.join(".").join("new"));
        let message = refused(&[("--json", Some(&new)), ("--out", Some(&same))], &[]);
        assert!(message.contains("--json and --out"), "{message}");
        check(&[("--json", Some(&new)), ("--out", Some(&there)), ("--sizes", None)], &[input])
            .unwrap();
        assert_eq!(std::fs::read_to_string(there).unwrap(), "kept");
        assert!(!new.exists(), "nothing is made by looking");
        let link = here.join("link");
        std::os::unix::fs::symlink("new", &link).unwrap();
        check(&[("--out", Some(&link))], &[]).unwrap();
        assert!(!new.exists() && link.is_symlink(), "nor through a link");
        let message = refused(&[("--out", Some(Path::new("/no/such/x.svg")))], &[]);
        assert!(message.contains("/no/such/x.svg"), "{message}");
    }

    #[test]
    fn plots_are_called_svg() {
        for name in ["x.svg", "x.SVG", "a.b.svg"] {
            check_plot("--out", Some(Path::new(name))).unwrap();
        }
        check_plot("--out", None).unwrap();
        for name in ["x.png", "svg", ".svg", "x", "x.svg.gz"] {
            let failure = check_plot("--out", Some(Path::new(name))).unwrap_err();
            assert_eq!(failure.code, 2);
            let message = failure.message;
            assert!(message.contains(&format!("--out: '{name}'")) && message.contains(".svg"));
        }
    }
}
