//! The records that an image has already and that its ring still holds: what the image is compared with.
//!
//! The writer overwrites the oldest record first, and a record's header before its runs. So the records that are left are those from some record on, without a gap; the ones of
//! earlier epochs among them, as an epoch begins where the one before has ended.

use super::{Reader, Ring, Turning};
use crate::record::{HEADER_BYTES, Header, Point};
use crate::{Fault, Storage};

impl Ring {
    /// The records before the first one that the image needs, from the oldest on that is left, and the position behind the last of them. The last of them has made the image's
    /// `state`. `None`: none is left, or the last one is damaged. The buffer has room for 4 KiB.
    ///
    /// # Errors
    /// The storage's.
    pub fn held<S: Storage>(
        &self,
        storage: &S,
        state: Point,
        buffer: &mut [u8],
    ) -> Result<Option<(Reader, u64)>, S::Error> {
        let turning = Turning::new(storage, self.shape);
        // Positions a turn later are the same places: the oldest record is the one that would be overwritten next.
        let stop = self.first.saturating_add(self.shape.capacity);
        let mut from = self.end;
        while let Some(at) = self.next_header(&turning, buffer, (from, stop))? {
            let (mut end, mut last) = (at, None);
            while let Some(header) = self.whole(&turning, end, (last, stop), buffer)? {
                end = header.behind(end, self.shape.align);
                last = Some(header);
            }
            match last {
                Some(header) if end == stop => {
                    let reader = (header.point == state).then(|| Reader::from(self, at, storage));
                    return Ok(reader.transpose()?.map(|reader| (reader, stop)));
                }
                Some(_) => from = end,
                None => from = at + self.shape.align,
            }
        }
        Ok(None)
    }

    /// The header of the whole record at a position, if it continues the one before and ends at `stop` at most.
    fn whole<S: Storage>(
        &self,
        turning: &Turning<&S>,
        at: u64,
        (before, stop): (Option<Header>, u64),
        buffer: &mut [u8],
    ) -> Result<Option<Header>, S::Error> {
        let mut bytes = [0; HEADER_BYTES];
        turning.read(at, &mut bytes)?;
        let continues = |header: &Header| before.is_none_or(|before| before.point == header.before);
        let header = Header::parse(&bytes).filter(|header| {
            let is_inside = header.behind(at, self.shape.align) <= stop;
            header.identity == self.identity && is_inside && continues(header)
        });
        let Some(header) = header else { return Ok(None) };
        Ok(header.is_whole(turning, at, buffer)?.then_some(header))
    }

    /// The first position in the range where a header may be.
    fn next_header<S: Storage>(
        &self,
        turning: &Turning<&S>,
        buffer: &mut [u8],
        (mut at, stop): (u64, u64),
    ) -> Result<Option<u64>, S::Error> {
        let align = self.shape.align;
        let most = buffer.len() as u64 / align * align;
        if most == 0 {
            return Err(Fault::Buffer.into());
        }
        while at < stop {
            let len = usize::try_from(most.min(stop - at)).unwrap_or(0);
            let part = buffer.get_mut(..len).unwrap_or(&mut []);
            if turning.read(at, part)? < len {
                return Err(Fault::Damaged.into());
            }
            let step = usize::try_from(align).unwrap_or(4096);
            let begins = |from: &usize| Header::begins(part.get(*from..).unwrap_or(&[]));
            if let Some(from) = (0..len).step_by(step).find(begins) {
                return Ok(Some(at + from as u64));
            }
            at += len as u64;
        }
        Ok(None)
    }
}
