//! A text that grows: a vector of bytes of UTF-8.

use core::fmt;

use super::held::HeapRef;
use super::{Vector, VectorHead};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;

/// A text in a heap: UTF-8, to which only whole characters are appended, and of which only whole characters are removed.
pub struct Text<'h, H = &'h Heap>(Vector<'h, u8, H>);

impl<H: HeapRef> fmt::Debug for Text<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        f.write_char('"')?;
        self.chars().flat_map(char::escape_debug).try_for_each(|part| f.write_char(part))?;
        f.write_char('"')
    }
}

impl<H: HeapRef> fmt::Display for Text<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        self.chars().try_for_each(|part| f.write_char(part))
    }
}

impl<'h> Text<'h> {
    /// Opens the text that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// As for [`Vector::open`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<Text<'h, H>, Error> {
        Vector::<u8>::open(heap, name).map(Text)
    }

    /// The handle of the text that a pointer leads to.
    ///
    /// # Errors
    /// As for [`Vector::of`].
    ///
    /// # Safety
    /// As for [`Vector::of`].
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<VectorHead<u8>>,
    ) -> Result<Text<'h, H>, Error> {
        // SAFETY: promised by the caller.
        unsafe { Vector::<u8>::of(heap, head) }.map(Text)
    }
}

impl<H: HeapRef> Text<'_, H> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a text.
    ///
    /// # Errors
    /// As for [`Vector::extend`].
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        self.0.extend(text.as_bytes())
    }

    /// Removes all but the first `len` bytes. A `len` within a character changes nothing.
    ///
    /// # Errors
    /// As for [`Vector::truncate`].
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        let is_end = self.0.get(len).is_none_or(|byte| byte & 0xc0 != 0x80);
        self.0.truncate(if is_end { len } else { usize::MAX })
    }

    /// Removes all of it, and frees the room.
    ///
    /// # Errors
    /// As for [`Vector::clear`].
    pub fn clear(&mut self) -> Result<(), Error> {
        self.0.clear()
    }

    /// The characters. Bytes that a damaged disk has left without a meaning are read as the replacement character.
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
