//! Files stay short: a longer one is two ideas.

use super::{File, Finding};

/// Near 500 lines is the aim; beyond this it is an error.
const LIMIT_LINES: usize = 600;

pub fn check(file: &File) -> Option<Finding> {
    let is_source = matches!(file.extension(), "rs" | "c" | "h" | "cc" | "cpp");
    let lines = file.text.lines().count();
    (is_source && lines > LIMIT_LINES).then(|| {
        file.finding(
            LIMIT_LINES + 1,
            format!(
                "{lines} lines; a file of more than {LIMIT_LINES} holds two ideas: move one of \
                 them to a file of its own"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn the_limit_is_for_sources_only() {
        let long = "x\n".repeat(LIMIT_LINES + 1);
        assert!(check(&file("a.rs", &long)).unwrap().message.starts_with("601 lines"));
        assert!(check(&file("a.cpp", &long)).is_some());
        assert!(check(&file("a.md", &long)).is_none());
        assert!(check(&file("a.rs", &"x\n".repeat(LIMIT_LINES))).is_none());
    }
}
