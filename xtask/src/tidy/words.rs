//! Words that stay out of the tree: unfinished work, and the places it was written at.
//!
//! The words are put together from halves here, so that this file passes its own rule.

use super::{File, Finding};
use crate::source::is_word;

struct Word {
    text: &'static str,
    /// Why it is not wanted and what to do.
    advice: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Stands alone: no letter, digit or underscore beside it.
    Word,
    /// The beginning of an absolute path.
    Path,
}

const UNFINISHED: &str = "what is committed is finished: do it, or leave it out";
const MACRO: &str = "it panics where memory is allocated: write the code, or leave it out";
const PLACE: &str = "it exists on one machine only: take it from the environment, or use a \
                     temporary directory";
const HOST: &str = "where packages come from is the user's choice: leave it to the package \
                    manager's own configuration";

const WORDS: [Word; 18] = [
    word(concat!("TO", "DO"), UNFINISHED),
    word(concat!("FIX", "ME"), UNFINISHED),
    word(concat!("XX", "X"), UNFINISHED),
    word(concat!("unimplemen", "ted!"), MACRO),
    word(concat!("to", "do!"), MACRO),
    path(concat!("/ho", "me/")),
    path(concat!("/ro", "ot/")),
    path(concat!("/wo", "rk/")),
    host(concat!("crates", ".io")),
    host(concat!("pypi", ".org")),
    host(concat!("files.python", "hosted.org")),
    host(concat!("registry.npm", "js.org")),
    host(concat!("proxy.gol", "ang.org")),
    host(concat!("sum.gol", "ang.org")),
    host(concat!("deb.deb", "ian.org")),
    host(concat!("archive.ubu", "ntu.com")),
    host(concat!("repo.maven.apa", "che.org")),
    host(concat!("ruby", "gems.org")),
];

const fn word(text: &'static str, advice: &'static str) -> Word {
    Word { text, advice, kind: Kind::Word }
}

const fn path(text: &'static str) -> Word {
    Word { text, advice: PLACE, kind: Kind::Path }
}

const fn host(text: &'static str) -> Word {
    Word { text, advice: HOST, kind: Kind::Word }
}

pub fn check(file: &File) -> Vec<Finding> {
    // Cargo writes this one, with the name of its index in every entry.
    if file.name() == "Cargo.lock" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in WORDS.iter().filter(|w| contains(line, w)) {
            findings.push(file.finding(index + 1, format!("`{}`; {}", word.text, word.advice)));
        }
    }
    findings
}

fn contains(line: &str, word: &Word) -> bool {
    line.match_indices(word.text).any(|(at, text)| {
        let before = line[..at].bytes().next_back();
        let after = line[at + text.len()..].bytes().next();
        match word.kind {
            // `a/home/` and `./home/` are relative, `$TMP/home/` and `${x}/home/` made up.
            Kind::Path => !before.is_some_and(|b| is_word(b) || b"./-})~*".contains(&b)),
            Kind::Word => !before.is_some_and(is_word) && !after.is_some_and(is_word),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(text: &str) -> usize {
        check(&file("a.md", text)).len()
    }

    #[test]
    fn every_word_is_found_where_it_stands_alone() {
        for word in &WORDS {
            let line = format!("see {}x", word.text);
            let alone = format!("see \"{}", word.text);
            assert_eq!(found(&alone), 1, "{alone}");
            assert_eq!(found(&line), usize::from(word.kind == Kind::Path), "{line}");
        }
    }

    #[test]
    fn longer_words_and_relative_paths_are_fine() {
        for line in [
            concat!("mktemp XX", "XXXX"),
            concat!("TO", "DOS"),
            concat!("the_to", "do!"),
            concat!("target/wo", "rk/x"),
            concat!("$TMP/ho", "me/x"),
            concat!("./ro", "ot/x"),
        ] {
            assert_eq!(found(line), 0, "{line}");
        }
    }

    #[test]
    fn the_line_and_the_advice_are_given() {
        let findings = check(&file("a.rs", concat!("fine\n// FIX", "ME later\n")));
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].message.contains("do it, or leave it out"));
        let lock = file("x/Cargo.lock", concat!("https://crates", ".io/"));
        assert!(check(&lock).is_empty());
    }
}
