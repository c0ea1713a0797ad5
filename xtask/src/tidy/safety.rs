//! `unsafe` comes with its reason: a `SAFETY:` comment for what relies on an invariant, a
//! `# Safety` section for what imposes one.

use super::{File, Finding};
use crate::source::{Source, is_word};

/// How far above `unsafe` its comment may end, in lines.
const REACH_LINES: usize = 6;

pub fn check(file: &File) -> Vec<Finding> {
    if file.extension() != "rs" {
        return Vec::new();
    }
    let source = Source::new(&file.text);
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut findings = Vec::new();
    for item in items(&source.code) {
        let line = source.line_of(item.at);
        let message = match item.kind {
            Kind::Block if !has_reason(&comments, line) => {
                "`unsafe` block without its reason; say above it, in a `// SAFETY:` comment, which \
                 invariant makes it right"
            }
            Kind::Impl if !has_reason(&comments, line) => {
                "`unsafe impl` without its reason; say above it, in a `// SAFETY:` comment, why \
                 the type keeps the trait's promise"
            }
            Kind::Function { public, end } => {
                let inside = line..=source.line_of(end);
                let reasoned = has_reason(&comments, line)
                    || inside.clone().any(|l| names_safety(comments.get(l - 1)));
                match (has_section(&file.text, line), public, reasoned) {
                    (true, _, _) | (false, false, true) => continue,
                    (false, true, _) => {
                        "public `unsafe fn` without a `# Safety` section; its callers must know \
                         what they promise: add one to its documentation"
                    }
                    (false, false, false) => {
                        "`unsafe fn` with neither a `# Safety` section nor a `// SAFETY:` comment; \
                         say what the caller promises"
                    }
                }
            }
            _ => continue,
        };
        findings.push(file.finding(line, message));
    }
    findings
}

#[derive(Debug, PartialEq)]
enum Kind {
    Block,
    Impl,
    /// A function of its own: neither one that a trait's documentation covers nor a type.
    Function {
        public: bool,
        /// Where its body ends, or its declaration.
        end: usize,
    },
}

#[derive(Debug)]
struct Item {
    at: usize,
    kind: Kind,
}

/// Every use of `unsafe` that has to be explained.
fn items(code: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut blocks: Vec<String> = Vec::new();
    // Where the current statement, item or expression began.
    let mut begin = 0;
    let mut at = 0;
    while let Some(byte) = code.as_bytes().get(at).copied() {
        match byte {
            b'{' => blocks.push(code[begin..at].trim().to_string()),
            b'}' => drop(blocks.pop()),
            b';' => {}
            _ if is_word(byte) => {
                let len = word_len(code, at);
                if &code[at..at + len] == "unsafe" {
                    items.extend(item(code, begin, at, blocks.last()));
                }
                at += len;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        }
        at += 1;
        begin = at;
    }
    items
}

fn item(code: &str, begin: usize, at: usize, around: Option<&String>) -> Option<Item> {
    let rest = &code[at + "unsafe".len()..];
    let next = rest.trim_start();
    let kind = if next.starts_with('{') {
        Kind::Block
    } else if starts_with_word(next, "impl") {
        Kind::Impl
    } else {
        // `unsafe fn name`, `unsafe extern "C" fn name`; without a name it is a type.
        let next = match next.strip_prefix("extern") {
            Some(abi) => abi.trim_start().trim_start_matches(['"', ' ']),
            None => next,
        };
        let name = starts_with_word(next, "fn").then(|| next["fn".len()..].trim_start())?;
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$') {
            return None;
        }
        if around.is_some_and(|header| is_trait_impl(header) || is_extern_block(header)) {
            return None;
        }
        let head = code[begin..at].trim_end();
        let public =
            head.rsplit(['\n', ']']).next().is_some_and(|h| starts_with_word(h.trim(), "pub"));
        Kind::Function { public, end: function_end(code, at) }
    };
    Some(Item { at, kind })
}

/// In `impl Trait for Type` the trait's documentation says what callers promise.
fn is_trait_impl(header: &str) -> bool {
    let words: Vec<&str> = header.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let is_impl = words.iter().find(|w| !w.is_empty() && **w != "unsafe") == Some(&"impl");
    // `for<'a>` binds lifetimes and names no type.
    let names_type = header.match_indices("for").any(|(i, _)| {
        header[i + 3..].starts_with(char::is_whitespace) && !is_inside_word(header, i)
    });
    is_impl && names_type
}

fn is_extern_block(header: &str) -> bool {
    header.trim_end_matches(['"', ' ']).ends_with("extern")
}

fn is_inside_word(text: &str, at: usize) -> bool {
    text[..at].bytes().next_back().is_some_and(is_word)
}

/// The end of a function's body, or of its declaration.
fn function_end(code: &str, at: usize) -> usize {
    let mut depth = 0usize;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return offset,
            b'}' => depth -= 1,
            b';' if depth == 0 => return offset,
            _ => {}
        }
    }
    code.len()
}

fn word_len(code: &str, at: usize) -> usize {
    code.as_bytes()[at..].iter().take_while(|b| is_word(**b)).count()
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.bytes().next().is_some_and(is_word))
}

/// Is there a `SAFETY:` comment on the line, or in a comment that ends a few lines above?
fn has_reason(comments: &[&str], line: usize) -> bool {
    let at = line - 1;
    if names_safety(comments.get(at)) {
        return true;
    }
    let mut above = at;
    let mut reach = REACH_LINES;
    while above > 0 && reach > 0 {
        above -= 1;
        if names_safety(comments.get(above)) {
            return true;
        }
        // A long comment is reached when its last line is.
        let is_comment = comments.get(above).is_some_and(|c| !c.trim().is_empty());
        if !is_comment {
            reach -= 1;
        }
    }
    false
}

fn names_safety(comment: Option<&&str>) -> bool {
    comment.is_some_and(|c| c.contains("SAFETY:"))
}

/// Has the documentation right above the line a `# Safety` section?
fn has_section(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let head = lines[..line - 1].iter().rev().map(|l| l.trim());
    // Attributes may stand between; an attribute over several lines has code in it.
    head.take_while(|l| l.starts_with("///") || l.starts_with("#[") || l.starts_with("//"))
        .any(|l| l.starts_with("///") && l[3..].trim() == "# Safety")
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&file("a.rs", text)).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn blocks_and_impls_need_a_reason() {
        assert_eq!(lines("fn f() {\n    unsafe { g() }\n}"), [2]);
        assert_eq!(lines("fn f() {\n    // SAFETY: g is harmless.\n    unsafe { g() }\n}"), [0; 0]);
        assert_eq!(lines("fn f() { unsafe { g() } } // SAFETY: harmless."), [0; 0]);
        assert_eq!(lines("unsafe impl Sync for X {}"), [1]);
        assert_eq!(lines("// SAFETY: no state.\nunsafe impl Sync for X {}"), [0; 0]);
        assert_eq!(lines("let x = unsafe\n{ g() };"), [1]);
    }

    #[test]
    fn the_reason_is_near() {
        let far = |n| format!("// SAFETY: yes.\n{}unsafe {{ g() }}", "x();\n".repeat(n));
        assert_eq!(lines(&far(REACH_LINES - 1)), [0; 0]);
        assert_eq!(lines(&far(REACH_LINES)), [REACH_LINES + 2]);
        // A long explanation counts from its end.
        let long = format!("// SAFETY: yes,\n{}unsafe {{ g() }}", "// since\n".repeat(20));
        assert_eq!(lines(&long), [0; 0]);
        // One reason in a string is none.
        assert_eq!(lines("let s = \"// SAFETY:\"; unsafe { g() }"), [1]);
    }

    #[test]
    fn public_functions_need_a_section() {
        let doc = "/// Frees.\n///\n/// # Safety\n/// `p` is live.\n#[inline]\n";
        assert_eq!(lines(&format!("{doc}pub unsafe fn free(p: *mut u8) {{}}")), [0; 0]);
        assert_eq!(lines("/// Frees.\npub unsafe fn free(p: *mut u8) {}"), [2]);
        assert_eq!(lines("// SAFETY: p is live.\npub unsafe fn free(p: *mut u8) {}"), [2]);
        assert_eq!(lines("pub(crate) unsafe extern \"C\" fn f() {}"), [1]);
    }

    #[test]
    fn private_functions_may_have_a_comment() {
        assert_eq!(lines("unsafe fn f() {}"), [1]);
        assert_eq!(lines("// SAFETY: only from g.\nunsafe fn f() {}"), [0; 0]);
        let inside =
            "unsafe extern \"C\" fn f() {\n    // SAFETY: passed on.\n    unsafe { g() }\n}";
        assert_eq!(lines(inside), [0; 0]);
        assert_eq!(lines("trait T {\n    unsafe fn f();\n}\n// SAFETY: x"), [2]);
    }

    #[test]
    fn a_traits_documentation_covers_its_impls() {
        assert_eq!(lines("impl T for X {\n    unsafe fn f() {}\n}"), [0; 0]);
        assert_eq!(
            lines("impl<'a> T<'a> for X<'a> where X: Sized {\n    unsafe fn f() {}\n}"),
            [0; 0]
        );
        assert_eq!(lines("impl X {\n    unsafe fn f() {}\n}"), [2]);
        assert_eq!(lines("impl<F: for<'a> Fn(&'a u8)> X<F> {\n    unsafe fn f() {}\n}"), [2]);
        assert_eq!(lines("// SAFETY: x\nunsafe impl G for X {\n    unsafe fn f() {}\n}"), [0; 0]);
    }

    #[test]
    fn types_declarations_and_attributes_are_not_functions() {
        assert_eq!(lines("type F = unsafe extern \"C\" fn(u8);\ntype G = unsafe fn();"), [0; 0]);
        assert_eq!(
            lines("unsafe extern \"C\" {\n    pub unsafe fn f();\n    safe fn g();\n}"),
            [0; 0]
        );
        assert_eq!(lines("#[unsafe(no_mangle)]\nextern \"C\" fn f() {}"), [0; 0]);
        assert_eq!(lines("// unsafe { }\nlet s = \"unsafe {\";"), [0; 0]);
        assert_eq!(check(&file("a.c", "unsafe { }")), []);
    }
}
