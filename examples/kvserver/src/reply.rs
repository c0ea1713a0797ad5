//! Replies in the second version of Redis' protocol.

use redis_protocol::resp2::encode::encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

use std::borrow::Cow;

use crate::numbers;

/// The most bytes of a command's reply. One that names a long value again and again asks for more than any memory holds.
pub const MOST_REPLY: usize = 1 << 30;

/// The most bytes of a request's word that an error has.
const MOST_OF_WORD: usize = 128;

/// The beginning of a request's word, as an error has it.
pub fn short(word: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(word.get(..MOST_OF_WORD).unwrap_or(word))
}

/// Replies, one behind the other.
#[derive(Default, Debug)]
pub struct Out {
    pub bytes: Vec<u8>,
    /// Where the bytes end at most; 0: there is no bound.
    end: usize,
    /// A part of the replies was left out: it does not fit.
    is_cut: bool,
}

impl Out {
    /// Without replies, and with a bound of the bytes that it takes.
    pub fn bounded(most: usize) -> Self {
        Self { end: most, ..Self::default() }
    }

    /// Has what comes from here on take `most` bytes at most. More is left out.
    pub fn bound(&mut self, most: usize) {
        self.end = self.bytes.len().saturating_add(most);
        self.is_cut = false;
    }

    /// Whether a part was left out since the last call of [`Out::bound`].
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Puts replies behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.is_cut |= other.is_cut || !self.has_room(other.bytes.len());
        if !self.is_cut {
            self.bytes.append(&mut other.bytes);
        }
    }

    fn has_room(&self, more: usize) -> bool {
        self.end == 0 || self.bytes.len() + more <= self.end
    }

    fn frame(&mut self, frame: &BorrowedFrame<'_>) {
        let (begin, len) = (self.bytes.len(), frame.encode_len(false));
        if self.is_cut || !self.has_room(len) {
            self.is_cut = true;
            return;
        }
        self.bytes.resize(begin + len, 0);
        let written = encode_borrowed(&mut self.bytes[begin..], frame, false);
        debug_assert!(written.is_ok(), "the room is what the frame takes");
    }

    pub fn ok(&mut self) {
        self.simple("OK");
    }

    pub fn simple(&mut self, text: &str) {
        self.frame(&BorrowedFrame::SimpleString(text.as_bytes()));
    }

    /// An error. Its text is one line.
    pub fn error(&mut self, text: &str) {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.contains(['\r', '\n']) {
            self.frame(&BorrowedFrame::Error(&text.replace(['\r', '\n'], " ")));
        } else {
            self.frame(&BorrowedFrame::Error(text));
        }
    }

    pub fn integer(&mut self, number: i64) {
        self.frame(&BorrowedFrame::Integer(number));
    }

    /// A number of things, as an integer.
    pub fn count(&mut self, number: usize) {
        self.integer(number as i64);
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.frame(&BorrowedFrame::BulkString(bytes));
    }

    pub fn float(&mut self, number: f64) {
        self.bulk(numbers::text_of_float(number).as_bytes());
    }

    /// No value.
    pub fn null(&mut self) {
        self.frame(&BorrowedFrame::Null);
    }

    /// No array.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(b"*-1\r\n");
    }

    /// The head of an array: as many replies follow.
    pub fn array(&mut self, len: usize) {
        self.bytes.extend_from_slice(format!("*{len}\r\n").as_bytes());
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An array of the replies that `work` writes; it returns how many they are.
    pub fn counted(&mut self, work: impl FnOnce(&mut Self) -> usize) {
        let begin = self.bytes.len();
        let len = work(self);
        self.bytes.splice(begin..begin, format!("*{len}\r\n").into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_those_of_the_protocol() {
        let mut out = Out::default();
        out.ok();
        out.integer(-7);
        out.bulk(b"a\r\n");
        out.null();
        out.null_array();
        out.error("ERR two\r\nlines");
        out.float(2.5);
        out.counted(|out| {
            out.bulk(b"");
            out.array(0);
            2
        });
        let expected: &[u8] = b"+OK\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n-ERR two  lines\r\n$3\r\n2.5\r\n*2\r\n$0\r\n\r\n*0\r\n";
        assert_eq!(out.bytes, expected);
    }
}
