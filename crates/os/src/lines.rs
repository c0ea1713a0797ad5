//! Lines of the kernel's files, read with little stack: this happens within malloc, on threads of
//! the program's.

use core::ffi::CStr;

use crate::env::{self, Reading};

/// Longest line that is handed over; longer ones are passed over.
const LINE_BYTES: usize = 512;

/// Hands the lines of a file to `look` one by one, without their ends, until it returns something,
/// which is returned. `None`: there was no such line, or the file cannot be read. `errno` is left as
/// it was found.
#[inline(never)]
pub fn find<T>(path: &CStr, look: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let errno = env::errno();
    let found = find_in(path, look);
    env::set_errno(errno);
    found
}

fn find_in<T>(path: &CStr, mut look: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let file = Reading::open(path).ok()?;
    let mut buffer = [0; LINE_BYTES];
    let (mut filled, mut is_too_long) = (0, false);
    loop {
        let count = file.read(buffer.get_mut(filled..)?).ok()?;
        if count == 0 {
            let last = buffer.get(..filled)?;
            return if filled > 0 && !is_too_long { look(last) } else { None };
        }
        filled += count;
        let mut rest = buffer.get(..filled)?;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (rest.get(..end)?, rest.get(end + 1..)?);
            if !core::mem::take(&mut is_too_long)
                && let Some(found) = look(line)
            {
                return Some(found);
            }
            rest = after;
        }
        let (left, all) = (rest.len(), filled);
        buffer.copy_within(all - left..all, 0);
        filled = left;
        if filled == LINE_BYTES {
            (filled, is_too_long) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::string::String;
    use std::vec::Vec;
    use std::{format, vec};

    fn lines_of(text: &str) -> Vec<String> {
        let name = format!("spandrel-lines-{}-{:p}", std::process::id(), text);
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut lines = vec![];
        let found: Option<()> = find(&name, |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            None
        });
        assert_eq!(found, None);
        std::fs::remove_file(&path).unwrap();
        lines
    }

    #[test]
    fn lines_one_by_one() {
        assert_eq!(lines_of(""), [""; 0]);
        assert_eq!(lines_of("a\n\nb"), ["a", "", "b"]);
        let text: Vec<String> = (0..400).map(|n| format!("{n} {}", "x".repeat(n))).collect();
        assert_eq!(lines_of(&text.join("\n")), text);
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over() {
        let at_most = "m".repeat(LINE_BYTES - 1);
        for long in [LINE_BYTES, LINE_BYTES + 1, 3 * LINE_BYTES, 3 * LINE_BYTES + 7] {
            let long = "l".repeat(long);
            let text = format!("a\n{at_most}\n{long}\nb\n{long}\nc\n{long}");
            assert_eq!(lines_of(&text), ["a", &at_most, "b", "c"]);
        }
    }

    #[test]
    fn the_first_that_is_found_ends_it_and_errno_stays() {
        env::set_errno(7);
        let found =
            find(c"/proc/self/status", |line| line.starts_with(b"Pid:").then_some(line.len()));
        assert!(found.is_some_and(|len| len > 5));
        assert_eq!(find(c"/proc/nothing/of/the/kind", |_| Some(())), None);
        assert_eq!(env::errno(), 7);
    }
}
