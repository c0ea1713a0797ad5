//! A text that grows.

use spandrel_pmem::{Media, Medium};

use super::{Vector, VectorHead};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;

/// A text in a heap: UTF-8, of which only whole characters are added or taken away.
pub struct Text<'h, M: Medium = Media>(Vector<'h, u8, M>);

impl<'h, M: Medium> Text<'h, M> {
    /// The text of a name, made if there is none.
    ///
    /// # Errors
    /// As for [`Vector::open`].
    pub fn open(heap: &'h Heap<M>, name: &str) -> Result<Self, Error> {
        Vector::open(heap, name).map(Self)
    }

    /// The text that a pointer leads to.
    ///
    /// # Errors
    /// As for [`Vector::of`].
    pub fn of(heap: &'h Heap<M>, head: PPtr<VectorHead<u8>>) -> Result<Self, Error> {
        Vector::of(heap, head).map(Self)
    }

    /// Bytes of the text.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds to the end.
    ///
    /// # Errors
    /// As for [`Vector::extend`].
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        self.0.extend(text.as_bytes())
    }

    /// Cuts it off behind so many bytes, if a character ends there.
    pub fn truncate(&mut self, len: usize) {
        let is_end = self.0.get(len).is_none_or(|byte| byte & 0xc0 != 0x80);
        if is_end {
            self.0.truncate(len);
        }
    }

    /// Its characters. What a damaged disk has made no characters of is the replacement character.
    pub fn chars(&self) -> impl Iterator<Item = char> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let mut bytes = [0; 4];
            let mut count = 0;
            while let Some(byte) = self.0.get(at + count).filter(|_| count < 4) {
                bytes[count] = byte;
                count += 1;
                let whole =
                    core::str::from_utf8(&bytes[..count]).ok().and_then(|text| text.chars().next());
                if let Some(character) = whole {
                    at += count;
                    return Some(character);
                }
            }
            let is_any = count > 0;
            at += usize::from(is_any);
            is_any.then_some(char::REPLACEMENT_CHARACTER)
        })
    }
}
