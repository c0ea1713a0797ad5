//! Commands in messages, as a shell takes them.

use std::path::Path;

/// `'spandrel heap check a.heap'`: a command about a file, in quotes. A path with a space or the like is quoted within the command, so that
/// what stands between the outer quotes can be pasted into a shell.
pub fn command(words: &str, path: &Path) -> String {
    let path = quoted(path);
    let outer = if path.contains('\'') { '"' } else { '\'' };
    format!("{outer}spandrel heap {words} {path}{outer}")
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let mut text = path.to_string_lossy().into_owned();
    // Not an option.
    if text.starts_with('-') {
        text.insert_str(0, "./");
    }
    // Fails for zero bytes only, which no path has.
    let quoted = shlex::try_quote(&text).map(|quoted| quoted.into_owned());
    quoted.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        let check = |path: &str| command("check", Path::new(path));
        assert_eq!(check("a.heap"), "'spandrel heap check a.heap'");
        assert_eq!(check("/var/lib/x-1_2/a.heap"), "'spandrel heap check /var/lib/x-1_2/a.heap'");
        assert_eq!(check("my heap"), "\"spandrel heap check 'my heap'\"");
        assert_eq!(check("-a"), "'spandrel heap check ./-a'");
        for odd in ["it's", "$(x)", "a\"b", "a;b", "a\nb", "~", "*", "é ü", "a'\"$b"] {
            let command = check(odd);
            let inner = &command[1..command.len() - 1];
            let words = shlex::split(inner).unwrap();
            assert_eq!(words, ["spandrel", "heap", "check", odd], "{command}");
        }
    }
}
