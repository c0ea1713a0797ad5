//! Finding a program as shells do.

use nix::unistd::{AccessFlags, access};
use spandrel_console::Failure;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the C library looks when `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file that `name` stands for: itself if it contains a slash, else the first
/// of that name in `PATH` that may be executed.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    if name.is_empty() {
        return Err(Failure::not_found("the program's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match check(&file) {
            Found::Executable => Ok(file),
            Found::No(why) => Err(Failure::not_executable(format!("'{shown}': {why}"))),
            Found::Missing => Err(Failure::not_found(format!("'{shown}': no such file"))),
        };
    }
    let mut not_executable = None;
    for directory in std::env::split_paths(path) {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
        let file = directory.join(name);
        match check(&file) {
            Found::Executable => return Ok(file),
            Found::No(why) => not_executable = not_executable.or(Some((file, why))),
            Found::Missing => {}
        }
    }
    Err(match not_executable {
        Some((file, why)) => Failure::not_executable(format!("'{}': {why}", file.display())),
        None => Failure::not_found(format!("'{shown}': no such program in PATH")),
    })
}

enum Found {
    Executable,
    No(&'static str),
    Missing,
}

fn check(file: &Path) -> Found {
    match std::fs::metadata(file) {
        Err(_) => Found::Missing,
        Ok(metadata) if metadata.is_dir() => Found::No("is a directory"),
        Ok(_) if access(file, AccessFlags::X_OK).is_err() => Found::No("may not be executed"),
        Ok(_) => Found::Executable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn as_shells_do() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&second).unwrap();
        let plain = first.join("tool");
        std::fs::write(&plain, "").unwrap();
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();

        assert_eq!(find_in("tool".as_ref(), &path).unwrap_err().code, 126);
        let good = second.join("tool");
        std::fs::write(&good, "").unwrap();
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in("tool".as_ref(), &path).unwrap(), good);

        assert_eq!(find_in("other".as_ref(), &path).unwrap_err().code, 127);
        assert_eq!(find_in(first.as_os_str(), &path).unwrap_err().code, 126);
        assert_eq!(find_in("./no/such".as_ref(), &path).unwrap_err().code, 127);
        assert_eq!(find_in("".as_ref(), &path).unwrap_err().code, 127);
    }
}
