//! Replies in the second version of Redis' protocol.

use redis_protocol::resp2::encode::encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

use crate::numbers;

/// Replies, one behind the other.
#[derive(Default, Debug)]
pub struct Out(pub Vec<u8>);

impl Out {
    fn frame(&mut self, frame: &BorrowedFrame<'_>) {
        let begin = self.0.len();
        self.0.resize(begin + frame.encode_len(false), 0);
        let written = encode_borrowed(&mut self.0[begin..], frame, false);
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
        self.0.extend_from_slice(b"*-1\r\n");
    }

    /// The head of an array: as many replies follow.
    pub fn array(&mut self, len: usize) {
        self.0.extend_from_slice(format!("*{len}\r\n").as_bytes());
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An array of the replies that `work` writes; it returns how many they are.
    pub fn counted(&mut self, work: impl FnOnce(&mut Self) -> usize) {
        let begin = self.0.len();
        let len = work(self);
        self.0.splice(begin..begin, format!("*{len}\r\n").into_bytes());
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
        assert_eq!(out.0, expected);
    }
}
