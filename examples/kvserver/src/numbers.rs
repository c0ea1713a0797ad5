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

/// A number with a fraction, or an infinity. NaN is none.
pub fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
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
        for text in ["nan", "", "1x", " 1", "1 "] {
            assert_eq!(float(text.as_bytes()), None, "{text:?}");
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
