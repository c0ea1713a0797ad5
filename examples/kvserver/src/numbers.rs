//! Numbers in text, as Redis reads and writes them.

/// An integer in its shortest form: no sign but `-`, no zero or space before it.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_shortest = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_shortest.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// A number with a fraction, or an infinity. NaN is none, nor is a number that is too large or too small for its kind.
pub fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let digits = || text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_exact = if number.is_infinite() {
        !text.iter().any(u8::is_ascii_digit)
    } else {
        number != 0.0 || !digits().any(|byte| matches!(byte, b'1'..=b'9'))
    };
    (is_exact && !number.is_nan()).then_some(number)
}

/// Digits behind the point that are added without an error.
const PLACES: u32 = 17;

/// A number in units of 10^-17. `None`: it is none, or has no such form.
fn decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (text, exponent) = match text.split_once(['e', 'E']) {
        Some((text, exponent)) => (text, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = whole.bytes().chain(part.bytes()).peekable();
    all.peek()?;
    let number = all.try_fold(0i128, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    let places = i32::try_from(part.len()).ok()?;
    let shift = (PLACES as i32).checked_sub(places)?.checked_add(exponent)?;
    let units = number.checked_mul(10i128.checked_pow(u32::try_from(shift).ok()?)?)?;
    Some(if is_negative { -units } else { units })
}

/// The text of the sum of two numbers, without an exponent. What has up to 17 digits behind the point is added without an error.
///
/// `None`: the sum is no number.
pub fn sum(one: &[u8], other: &[u8]) -> Option<String> {
    let exact = || decimal(one)?.checked_add(decimal(other)?);
    if let Some(units) = exact() {
        let (sign, units) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
        let unit = 10u128.pow(PLACES);
        let text = format!("{sign}{}.{:017}", units / unit, units % unit);
        return Some(trimmed(&text));
    }
    let sum = float(one)? + float(other)? + 0.0;
    sum.is_finite().then(|| trimmed(&format!("{sum:.17}")))
}

/// Without zeroes at the end of the part behind the point.
fn trimmed(text: &str) -> String {
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// The shortest text that [`float`] reads as the same number.
pub fn text_of_float(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 {
        "0".to_owned()
    } else if number.is_finite() && !(1e-5..1e17).contains(&magnitude) {
        format!("{number:e}")
    } else {
        format!("{number}")
    }
}

/// Bytes whose order is that of the numbers. Both zeroes are one.
pub fn ordered(number: f64) -> [u8; 8] {
    const SIGN: u64 = 1 << 63;
    let bits = (number + 0.0).to_bits();
    (if bits & SIGN == 0 { bits | SIGN } else { !bits }).to_be_bytes()
}

/// The number that [`ordered`] has made bytes of.
pub fn of_ordered(bytes: [u8; 8]) -> f64 {
    const SIGN: u64 = 1 << 63;
    let bits = u64::from_be_bytes(bytes);
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_have_one_form() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_and_written() {
        for (text, number) in
            [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("3", 3.0), ("10.6", 10.6)]
        {
            assert_eq!(float(text.as_bytes()), Some(number));
            assert_eq!(text_of_float(number), text);
        }
        for text in ["nan", "", "1x", " 1", "1 ", "1e400", "-1e400", "1e-400"] {
            assert_eq!(float(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn sums_have_no_exponent_and_no_error_of_rounding() {
        for (one, other, expected) in [
            ("0.1", "0.2", "0.3"),
            ("0", "1e20", "100000000000000000000"),
            ("100000000000000000000", "-1e20", "0"),
            ("1e-10", "0", "0.0000000001"),
            ("-1.25", "0.5", "-0.75"),
            ("-0.5", ".5", "0"),
            ("5.", "+1", "6"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("1e15", "0.75", "1000000000000000.75"),
            ("1e30", "0.5", "1000000000000000019884624838656"),
            ("1e-30", "-1e-30", "0"),
        ] {
            assert_eq!(sum(one.as_bytes(), other.as_bytes()).as_deref(), Some(expected));
        }
        for (one, other) in
            [("1", "inf"), ("1.7e308", "1.7e308"), ("1", "."), ("1", ""), ("1", "-")]
        {
            assert_eq!(sum(one.as_bytes(), other.as_bytes()), None, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn the_text_of_a_float_is_read_as_it(number in any::<f64>().prop_filter("a number", |n| !n.is_nan())) {
            prop_assert_eq!(float(text_of_float(number).as_bytes()), Some(number));
            prop_assert_eq!(of_ordered(ordered(number)), number);
        }

        #[test]
        fn ordered_bytes_have_the_order_of_the_numbers(a in any::<f64>(), b in any::<f64>()) {
            if let Some(order) = a.partial_cmp(&b) {
                prop_assert_eq!(ordered(a).cmp(&ordered(b)), order);
            }
        }
    }
}
