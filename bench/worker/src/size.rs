//! Sizes as people write them: `4096`, `64B`, `4KiB`, `1M`, `2GB`. Every suffix
//! is a power of 1024, as in Spandrel's own profiles.

/// Parses a size in bytes; `None` if it is not one or does not fit.
pub fn parse(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: usize = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_suffix() {
        assert_eq!(parse("64"), Some(64));
        assert_eq!(parse("64B"), Some(64));
        assert_eq!(parse("4KiB"), Some(4096));
        assert_eq!(parse("4k"), Some(4096));
        assert_eq!(parse("1 MiB"), Some(1 << 20));
        assert_eq!(parse("2GB"), Some(2 << 30));
        assert_eq!(parse("1T"), Some(1 << 40));
    }

    #[test]
    fn nonsense() {
        for text in
            ["", "KiB", "-4", "4XiB", "1.5M", "99999999999999999999", "18446744073709551615K"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
