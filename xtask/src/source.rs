//! Rust source split into what the compiler reads and what people read.
//!
//! A rule about `unsafe` must not stumble over the word in a string or in a comment, and a rule
//! about comments must not find them in strings. This is a lexer for exactly that question.
//!
//! Invariant: `code` and `comments` have the text's length in bytes and its line breaks; a byte is
//! blank in at least one of them.

/// A Rust file with its code and its comments on separate sheets.
pub struct Source {
    /// The text with comments and the insides of literals blanked out.
    pub code: String,
    /// The text with everything but comments blanked out.
    pub comments: String,
}

impl Source {
    /// Splits a text. What does not lex to the end is taken for code.
    pub fn new(text: &str) -> Self {
        let mut splitter = Splitter {
            bytes: text.as_bytes(),
            at: 0,
            code: Vec::with_capacity(text.len()),
            comments: Vec::with_capacity(text.len()),
        };
        splitter.run();
        Source { code: lossy(splitter.code), comments: lossy(splitter.comments) }
    }

    /// The line of a byte, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        1 + self.code.as_bytes()[..at].iter().filter(|b| **b == b'\n').count()
    }
}

/// Blanking keeps or drops whole characters, except in literals, which are all blank.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| {
        e.into_bytes().into_iter().map(|b| if b.is_ascii() { char::from(b) } else { ' ' }).collect()
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Sheet {
    Code,
    Comments,
    Neither,
}

struct Splitter<'a> {
    bytes: &'a [u8],
    at: usize,
    code: Vec<u8>,
    comments: Vec<u8>,
}

impl Splitter<'_> {
    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(b"//") {
                let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                self.take(len, Sheet::Comments);
            } else if rest.starts_with(b"/*") {
                self.take(block_comment(rest), Sheet::Comments);
            } else if self.starts_word() {
                self.word();
            } else if rest[0] == b'"' {
                self.literal(string(rest));
            } else if rest[0] == b'\'' {
                match character(rest) {
                    Some(len) => self.literal(len),
                    None => self.take(1, Sheet::Code),
                }
            } else {
                self.take(1, Sheet::Code);
            }
        }
    }

    /// A word, or the string that it is the prefix of.
    fn word(&mut self) {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        let is_prefix = matches!(word, b"r" | b"b" | b"c" | b"br" | b"cr");
        let hashes = after.iter().take_while(|b| **b == b'#').count();
        let quoted = after.get(hashes) == Some(&b'"');
        let raw = word.contains(&b'r');
        if is_prefix && quoted && raw {
            let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
            let body = &after[hashes + 1..];
            let end = body.windows(close.len()).position(|w| w == close);
            let inner = end.map_or(body.len(), |e| e + close.len());
            self.literal(len + hashes + 1 + inner);
        } else if is_prefix && hashes == 0 && quoted {
            self.literal(len + string(after));
        } else if word == b"b" && after.first() == Some(&b'\'') {
            self.literal(len + character(after).unwrap_or(1));
        } else {
            self.take(len, Sheet::Code);
        }
    }

    fn starts_word(&self) -> bool {
        is_word(self.bytes[self.at])
    }

    /// Literals leave their quotes in the code, so that `f("x")` does not become `f()`.
    fn literal(&mut self, len: usize) {
        if len < 2 {
            return self.take(len, Sheet::Code);
        }
        self.take(1, Sheet::Code);
        self.take(len - 2, Sheet::Neither);
        self.take(1, Sheet::Code);
    }

    fn take(&mut self, len: usize, sheet: Sheet) {
        let end = (self.at + len).min(self.bytes.len());
        for byte in &self.bytes[self.at..end] {
            let blank = if *byte == b'\n' { b'\n' } else { b' ' };
            self.code.push(if sheet == Sheet::Code { *byte } else { blank });
            self.comments.push(if sheet == Sheet::Comments { *byte } else { blank });
        }
        self.at = end;
    }
}

/// Is this byte part of identifiers, keywords and numbers?
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn block_comment(text: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of a string literal with its quotes.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of a character literal with its quotes; `None` for a lifetime.
fn character(text: &[u8]) -> Option<usize> {
    if text.get(1) == Some(&b'\\') {
        let end = text.iter().skip(3).position(|b| *b == b'\'')?;
        return Some(end + 4);
    }
    let first = std::str::from_utf8(text.get(1..text.len().min(5))?)
        .map_or_else(|e| e.valid_up_to(), |_| usize::MAX);
    let valid = &text[1..1 + first.min(text.len().min(5) - 1)];
    let char_len = std::str::from_utf8(valid).ok()?.chars().next()?.len_utf8();
    (text.get(1 + char_len) == Some(&b'\'')).then_some(char_len + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).code
    }

    #[test]
    fn comments_are_not_code() {
        let source = Source::new("let a = 1; // unsafe {\n/* x /* y */ z */ b");
        assert_eq!(source.code, "let a = 1;            \n                  b");
        assert_eq!(source.comments, "           // unsafe {\n/* x /* y */ z */  ");
    }

    #[test]
    fn literals_are_neither() {
        assert_eq!(code(r#"f("// no", 'x', "\"")"#), r#"f("     ", ' ', "  ")"#);
        assert_eq!(code("f('\\'', '\"', b'\"', '}')"), "f('  ', ' ', b  ', ' ')");
        assert_eq!(code("r#\"a\"b\"# + br\"x\""), "r      # + b   \"");
        assert_eq!(code("c\"x{\""), "c   \"");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("let r#fn = 1;"), "let r#fn = 1;");
        assert_eq!(code("'outer: loop {}"), "'outer: loop {}");
    }

    #[test]
    fn lengths_and_lines_stay() {
        let text = "// größe\nlet s = \"ü{\n}\"; let c = 'ß';\nunsafe";
        let source = Source::new(text);
        assert_eq!((source.code.len(), source.comments.len()), (text.len(), text.len()));
        assert_eq!(source.line_of(source.code.find("unsafe").unwrap()), 4);
    }

    #[test]
    fn unfinished_text_does_not_hang_or_panic() {
        for text in ["\"", "'", "'\\", "r#\"", "/*", "b'", "'ü", "\"\\", "//", "b\"", "'a"] {
            assert_eq!(Source::new(text).code.len(), text.len(), "{text}");
        }
    }
}
