//! Patterns of keys, as `KEYS` and `SCAN` have them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that stands for itself.

/// Whether all of the text is what the pattern says. Takes at most the product of both lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where the last `*` was, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, seen));
            at += 1;
            continue;
        }
        if seen == text.len() && at == pattern.len() {
            return true;
        }
        let step = text.get(seen).and_then(|byte| one(pattern.get(at..)?, *byte));
        if let Some(taken) = step {
            at += taken;
            seen += 1;
            continue;
        }
        match &mut star {
            Some((after, from)) if *from < text.len() => {
                *from += 1;
                (at, seen) = (*after, *from);
            }
            _ => return false,
        }
    }
}

/// How much of the pattern stands for this byte; `None`: the byte is another one.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', next, ..] => (*next == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (is_in, taken) = class(rest, byte);
            is_in.then_some(1 + taken)
        }
        [first, ..] => (*first == byte).then_some(1),
    }
}

/// Whether a byte is in the class that begins here, and how long the class is. A class without an end ends with the pattern.
fn class(mut rest: &[u8], byte: u8) -> (bool, usize) {
    let begin = rest.len();
    let is_not = rest.first() == Some(&b'^');
    if is_not {
        rest = &rest[1..];
    }
    let mut is_in = false;
    loop {
        match rest {
            [] => break,
            [b']', ..] => {
                rest = &rest[1..];
                break;
            }
            [b'\\', next, ..] => {
                is_in |= *next == byte;
                rest = &rest[2..];
            }
            [low, b'-', high, ..] => {
                is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                rest = &rest[3..];
            }
            [first, ..] => {
                is_in |= *first == byte;
                rest = &rest[1..];
            }
        }
    }
    (is_in != is_not, begin - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_redis_means() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*a*b*c", "xaxxbxxc", true),
            ("*a*b*c", "xaxxbxxcd", false),
            ("a[", "a", false),
            ("[a", "a", true),
            ("[]a", "a", false),
            ("\\", "\\", true),
            ("**", "abc", true),
            ("a*", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn stars_take_no_exponential_time() {
        let pattern = "a*".repeat(1000);
        assert!(!matches(format!("{pattern}b").as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
