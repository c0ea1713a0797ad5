//! A line of words, as a person types them: quoted by `"`, with escapes, or by `'`.

use std::ops::Range;

/// Finds the words of a line, and has `see` know where each is: escapes are replaced in place. `None`: a quotation does not end, or goes on
/// without a space behind its end.
pub fn words(line: &mut [u8], mut see: impl FnMut(Range<usize>)) -> Option<()> {
    let (mut at, mut end) = (0, 0);
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at == line.len() {
            return Some(());
        }
        let begin = end;
        let mut quote = None;
        loop {
            let Some(&byte) = line.get(at) else {
                if quote.is_some() {
                    return None;
                }
                break;
            };
            let (put, taken) = match quote {
                None if is_space(byte) => break,
                None if matches!(byte, b'"' | b'\'') => {
                    quote = Some(byte);
                    (None, 1)
                }
                None => (Some(byte), 1),
                Some(mark) if byte == mark => {
                    if line.get(at + 1).is_some_and(|next| !is_space(*next)) {
                        return None;
                    }
                    quote = None;
                    (None, 1)
                }
                Some(mark) => escaped(&line[at..], mark),
            };
            at += taken;
            if let Some(put) = put {
                // A word is not longer than what it is written as.
                line[end] = put;
                end += 1;
            }
        }
        see(begin..end);
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

/// A byte within a quotation, and the bytes that it is written with.
fn escaped(rest: &[u8], mark: u8) -> (Option<u8>, usize) {
    match (mark, rest) {
        (b'"', [b'\\', b'x', high, low, ..])
            if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
        {
            let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
            (Some(digit(*high) << 4 | digit(*low)), 4)
        }
        (b'"', [b'\\', next, ..]) => {
            let byte = match next {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'a' => 7,
                other => *other,
            };
            (Some(byte), 2)
        }
        (b'\'', [b'\\', b'\'', ..]) => (Some(b'\''), 2),
        _ => (rest.first().copied(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<Vec<Vec<u8>>> {
        let mut line = line.as_bytes().to_vec();
        let mut found = Vec::new();
        words(&mut line, |word| found.push(word))?;
        Some(found.into_iter().map(|word| line[word].to_vec()).collect())
    }

    #[test]
    fn words_are_those_of_redis() {
        for (line, expected) in [
            ("", &[][..]),
            ("  a\tb \r", &[&b"a"[..], b"b"]),
            (r#"set "a b" 'c\'d'"#, &[b"set", b"a b", b"c'd"]),
            (r#""\x00\n\\\"" ''"#, &[b"\0\n\\\"", b""]),
            (r#"a"b""#, &[b"ab"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(split(line), Some(expected), "{line}");
        }
        for line in [r#""a"#, "'a", r#""a"b"#, "'a'b", "\"a\\"] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
