//! Requests out of the bytes of a connection: arrays of bulk strings, or a line of words.
//!
//! Sizes are checked before room is made for what they announce. Parsing goes on where it stopped when more bytes have come, so that a
//! request takes time in proportion to its length, whatever its pieces are.

use std::borrow::Cow;
use std::ops::Range;

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

use super::inline;
use crate::numbers;

/// The most bytes of an argument.
pub const MOST_BULK: i64 = 512 << 20;
/// The most arguments of a request.
const MOST_ARGUMENTS: i64 = 1 << 20;
/// An idle connection keeps room for no more arguments.
const KEPT_ARGUMENTS: usize = 4096;
/// The most bytes of a line.
const MOST_LINE: usize = 64 << 10;

/// Sizes that a client may announce.
#[derive(Clone, Copy)]
pub struct Limits {
    arguments: i64,
    bulk: i64,
}

impl Limits {
    /// Those of a client that may use the data.
    pub const KNOWN: Self = Self { arguments: MOST_ARGUMENTS, bulk: MOST_BULK };
    /// Those of a client that has not said the password.
    pub const UNKNOWN: Self = Self { arguments: 10, bulk: 16 << 10 };
}

/// Why the bytes are no request. The connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub Cow<'static, str>);

impl Malformed {
    const fn new(why: &'static str) -> Self {
        Self(Cow::Borrowed(why))
    }
}

/// A request: where its arguments are among those of [`Parser::arguments`].
pub type Request = Range<usize>;

/// The requests of a connection.
#[derive(Default, Debug)]
pub struct Parser {
    /// Where each argument is in the bytes; those of requests that are whole first.
    arguments: Vec<Range<usize>>,
    /// Arguments that the last request still lacks.
    missing: usize,
    /// Where the arguments of the last request begin.
    begin: usize,
    /// Bytes that were parsed.
    at: usize,
    /// Bytes of requests that are whole.
    whole: usize,
}

impl Parser {
    /// The next request; `None`: its bytes have not all come.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn next(&mut self, bytes: &mut [u8], limits: Limits) -> Result<Option<Request>, Malformed> {
        loop {
            if self.missing == 0 {
                self.begin = self.arguments.len();
                match bytes.get(self.at) {
                    None => return Ok(None),
                    Some(b'*') => {
                        let error = "Protocol error: invalid multibulk length";
                        let long = "Protocol error: too big mbulk count string";
                        let Some((count, next)) = number(bytes, self.at + 1, error, long)? else {
                            return Ok(None);
                        };
                        if count > limits.arguments {
                            let unknown = "Protocol error: unauthenticated multibulk length";
                            let is_unknown = limits.arguments < MOST_ARGUMENTS;
                            return Err(Malformed::new(if is_unknown { unknown } else { error }));
                        }
                        self.at = next;
                        // An array of nothing is no request.
                        self.missing = usize::try_from(count).unwrap_or(0);
                        if self.missing == 0 {
                            self.whole = self.at;
                            continue;
                        }
                    }
                    Some(_) => {
                        let Some(next) = self.line(bytes, limits)? else { return Ok(None) };
                        self.at = next;
                        self.whole = next;
                        if self.begin == self.arguments.len() {
                            continue;
                        }
                        return Ok(Some(self.begin..self.arguments.len()));
                    }
                }
            }
            while self.missing > 0 {
                let Some(next) = self.bulk(bytes, limits)? else { return Ok(None) };
                self.at = next;
                self.missing -= 1;
            }
            self.whole = self.at;
            return Ok(Some(self.begin..self.arguments.len()));
        }
    }

    /// An argument; returns where the next one begins.
    fn bulk(&mut self, bytes: &[u8], limits: Limits) -> Result<Option<usize>, Malformed> {
        match bytes.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(byte) => {
                let got = char::from(*byte);
                return Err(Malformed(format!("Protocol error: expected '$', got '{got}'").into()));
            }
        }
        let error = "Protocol error: invalid bulk length";
        let long = "Protocol error: too big bulk count string";
        let Some((len, _)) = number(bytes, self.at + 1, error, long)? else { return Ok(None) };
        if !(0..=limits.bulk).contains(&len) {
            let unknown = "Protocol error: unauthenticated bulk length";
            let is_unknown = (limits.bulk..=MOST_BULK).contains(&len);
            return Err(Malformed::new(if is_unknown { unknown } else { error }));
        }
        match decode_range(&bytes[self.at..]) {
            Ok(Some((RangeFrame::BulkString((begin, end)), taken))) => {
                self.arguments.push(self.at + begin..self.at + end);
                Ok(Some(self.at + taken))
            }
            Ok(None) => Ok(None),
            _ => Err(Malformed::new(error)),
        }
    }

    /// A line of words; returns where the next request begins.
    fn line(&mut self, bytes: &mut [u8], limits: Limits) -> Result<Option<usize>, Malformed> {
        let rest = &mut bytes[self.at..];
        let Some(end) = rest.iter().take(MOST_LINE).position(|byte| *byte == b'\n') else {
            let is_long = rest.len() >= MOST_LINE;
            let error = Malformed::new("Protocol error: too big inline request");
            return if is_long { Err(error) } else { Ok(None) };
        };
        let line = &mut rest[..end];
        let error = Malformed::new("Protocol error: unbalanced quotes in request");
        inline::words(line, |word| {
            self.arguments.push(self.at + word.start..self.at + word.end);
        })
        .ok_or(error)?;
        if (self.arguments.len() - self.begin) as i64 > limits.arguments {
            return Err(Malformed::new("Protocol error: unauthenticated multibulk length"));
        }
        Ok(Some(self.at + end + 1))
    }

    /// Where the arguments of requests are in the bytes.
    pub fn arguments(&self) -> &[Range<usize>] {
        &self.arguments
    }

    /// Forgets the requests that are whole; returns the number of bytes to take away at the beginning.
    pub fn forget(&mut self) -> usize {
        let taken = std::mem::take(&mut self.whole);
        let whole = if self.missing == 0 { self.arguments.len() } else { self.begin };
        self.arguments.drain(..whole);
        if self.arguments.is_empty() && self.arguments.capacity() > KEPT_ARGUMENTS {
            self.arguments = Vec::new();
        }
        self.begin = 0;
        if taken > 0 {
            self.at -= taken;
            for argument in &mut self.arguments {
                *argument = argument.start - taken..argument.end - taken;
            }
        }
        taken
    }
}

/// The number in a line, and where the next line begins. `None`: the line has not come as a whole.
fn number(
    bytes: &[u8],
    at: usize,
    error: &'static str,
    long: &'static str,
) -> Result<Option<(i64, usize)>, Malformed> {
    /// A sign, the digits of the largest number, and some room.
    const MOST: usize = 32;
    let line = &bytes[at.min(bytes.len())..];
    match line.iter().take(MOST).position(|byte| *byte == b'\r') {
        Some(end) if line.len() < end + 2 => Ok(None),
        Some(end) if line[end + 1] != b'\n' => Err(Malformed::new(error)),
        Some(end) => {
            let number = numbers::integer(&line[..end]).ok_or(Malformed::new(error))?;
            Ok(Some((number, at + end + 2)))
        }
        None if line.len() >= MOST => Err(Malformed::new(long)),
        None => Ok(None),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    type Words = Vec<Vec<u8>>;

    /// The requests of bytes that come in pieces, and why the connection ends.
    fn parsed(pieces: &[&[u8]], limits: Limits) -> (Vec<Words>, Option<Malformed>) {
        let (mut parser, mut bytes, mut seen) = (Parser::default(), Vec::new(), Vec::new());
        for piece in pieces {
            bytes.extend_from_slice(piece);
            loop {
                match parser.next(&mut bytes, limits) {
                    Ok(Some(request)) => seen.push(
                        parser.arguments()[request]
                            .iter()
                            .map(|a| bytes[a.clone()].to_vec())
                            .collect(),
                    ),
                    Ok(None) => break,
                    Err(why) => return (seen, Some(why)),
                }
            }
            bytes.drain(..parser.forget());
        }
        (seen, None)
    }

    /// Requests as a client sends them.
    pub fn encoded(requests: &[Words]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for words in requests {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes
    }

    fn words(of: &[&str]) -> Words {
        of.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn pieces_of_any_length_make_the_same_requests() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\n*b\r\nPING  \"x \\x41\"\r\n*0\r\n*-1\r\n\r\n*1\r\n$0\r\n\r\nset 'a' b\n";
        let expected = [
            words(&["GET", "a\r\n*b"]),
            words(&["PING", "x A"]),
            words(&[""]),
            words(&["set", "a", "b"]),
        ];
        for split in 0..=bytes.len() {
            let (before, after) = bytes.split_at(split);
            let (seen, why) = parsed(&[before, after], Limits::KNOWN);
            assert_eq!((&seen[..], why), (&expected[..], None), "split at {split}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parsed(&single, Limits::KNOWN), (expected.to_vec(), None));
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_comes() {
        for (bytes, why) in [
            ("*1048577\r\n", "Protocol error: invalid multibulk length"),
            ("*x\r\n", "Protocol error: invalid multibulk length"),
            ("*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
            ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            ("*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
            ("*1\r\n*1\r\n", "Protocol error: expected '$', got '*'"),
            ("\"a\r\n", "Protocol error: unbalanced quotes in request"),
        ] {
            assert_eq!(
                parsed(&[bytes.as_bytes()], Limits::KNOWN).1,
                Some(Malformed::new(why)),
                "{bytes:?}"
            );
        }
        let digits = format!("*{}", "1".repeat(40));
        let why = Malformed::new("Protocol error: too big mbulk count string");
        assert_eq!(parsed(&[digits.as_bytes()], Limits::KNOWN).1.as_ref(), Some(&why));
        let line = "a".repeat(MOST_LINE);
        let why = Malformed::new("Protocol error: too big inline request");
        assert_eq!(parsed(&[line.as_bytes()], Limits::KNOWN).1.as_ref(), Some(&why));
        let why = Malformed::new("Protocol error: unauthenticated multibulk length");
        assert_eq!(parsed(&[b"*11\r\n"], Limits::UNKNOWN).1.as_ref(), Some(&why));
        let line = ["a"; 11].join(" ") + "\n";
        assert_eq!(parsed(&[line.as_bytes()], Limits::UNKNOWN).1.as_ref(), Some(&why));
        assert_eq!(parsed(&[&line.as_bytes()[2..]], Limits::UNKNOWN).0.len(), 1);
        let why = Malformed::new("Protocol error: unauthenticated bulk length");
        assert_eq!(parsed(&[b"*1\r\n$16385\r\n"], Limits::UNKNOWN).1.as_ref(), Some(&why));
    }

    proptest! {
        #[test]
        fn requests_come_out_as_they_went_in(
            requests in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = encoded(&requests);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(parsed(&pieces, Limits::KNOWN), (requests, None));
        }

        #[test]
        fn any_bytes_are_requests_or_refused(bytes in prop::collection::vec(
            prop::sample::select(b"*$0123-\r\n\"'\\ax :".to_vec()), 0..200)) {
            let whole = parsed(&[&bytes], Limits::KNOWN);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(parsed(&single, Limits::KNOWN), whole);
        }
    }
}
