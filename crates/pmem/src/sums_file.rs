//! The file with the [sums](crate::sums) of an image: opened, made, removed. A file of that name that is not one of this image is never changed.

use spandrel_os::draft::{self, Draft};
use spandrel_os::image::{Access, Image};
use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::Point;

use crate::files::open_log;
use crate::media::Place;
use crate::medium::Failed;
use crate::sums::{FIRST, GROUP, SUM_BYTES, bytes, fresh, hash, hash_of_zeroes, sum};

/// What becomes of the sums of an image that is opened with a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Sums that are there and fit are kept up; no file is made.
    #[default]
    IfThere,
    /// The image gets a file with sums if it has none that fits.
    Always,
    /// The file is removed.
    Never,
    /// As `IfThere`, after all sums were computed again: what the image holds is right, whatever the sums have said.
    Anew,
}

/// Opens the file with the sums of an image that was locked, and locks it. `None`: there is none.
///
/// # Errors
/// The error's number: `EWOULDBLOCK` if another process has it. [`Failed::FOREIGN_SUMS`]: a link, a directory.
pub fn open(place: &Place<'_>, access: Access) -> Result<Option<Image>, Failed> {
    let opened = open_log(place.sums, access);
    let opened =
        opened.map_err(|why| if why == Failed::NOT_A_LOG { Failed::FOREIGN_SUMS } else { why });
    let Some(file) = opened? else { return Ok(None) };
    if file.bytes().map_err(Failed)? == 0 {
        return Ok(None);
    }
    if access == Access::Write {
        file.lock(access).map_err(Failed)?;
    }
    Ok(Some(file))
}

/// Makes the file, with the sums of all that an image holds, which is complete and in that state.
///
/// # Errors
/// The error's number; [`Failed::FOREIGN_SUMS`]: there is a file of that name that holds something.
pub fn make(
    place: &Place<'_>,
    image: &Image,
    point: Point,
    buffer: &mut [u8],
) -> Result<Image, Failed> {
    let pages = image.bytes().map_err(Failed)? / PAGE_BYTES as u64;
    let draft = Draft::new(place.sums).map_err(Failed)?;
    let file = draft.image().map_err(Failed)?;
    file.grow(0, bytes(pages)).map_err(Failed)?;
    for from in (0..pages).step_by(GROUP as usize) {
        let to = (from + GROUP).min(pages);
        let mut words = [0; GROUP as usize * SUM_BYTES];
        let words = words.get_mut(..(to - from) as usize * SUM_BYTES).unwrap_or(&mut []);
        compute(image, (from, to), words, buffer)?;
        file.write_at(words, FIRST + from * SUM_BYTES as u64).map_err(Failed)?;
    }
    file.write_at(&fresh(place.identity, point, pages), 0).map_err(Failed)?;
    file.sync().map_err(Failed)?;
    file.lock(Access::Write).map_err(Failed)?;
    take_empty_away(place)?;
    match draft.publish(place.sums) {
        Err(libc::EEXIST) => Err(Failed::FOREIGN_SUMS),
        published => published.map_err(Failed),
    }
}

/// Removes an empty file of that name: nothing is in it.
fn take_empty_away(place: &Place<'_>) -> Result<(), Failed> {
    if let Ok(Some(file)) = open_log(place.sums, Access::Read)
        && file.bytes().map_err(Failed)? == 0
    {
        draft::remove_name(place.sums, &file).map_err(Failed)?;
    }
    Ok(())
}

/// Computes the sums of the pages from `from` to `to` as the file has them.
fn compute(
    image: &Image,
    (from, to): (u64, u64),
    words: &mut [u8],
    buffer: &mut [u8],
) -> Result<(), Failed> {
    let (page_bytes, zeroes) = (PAGE_BYTES as u64, hash_of_zeroes());
    let data = image.next_data(from * page_bytes).map_err(Failed)?;
    let is_hole = data.is_none_or(|(start, _)| start >= to * page_bytes);
    let (mut places, mut page) = (words.chunks_exact_mut(SUM_BYTES), from);
    let mut put = |page, hash| {
        if let Some(place) = places.next() {
            place.copy_from_slice(&sum(page, hash).to_le_bytes());
        }
    };
    if is_hole {
        (from..to).for_each(|page| put(page, zeroes));
        return Ok(());
    }
    while page < to {
        let most = ((to - page) * page_bytes).min((buffer.len() / PAGE_BYTES) as u64 * page_bytes);
        let part = buffer.get_mut(..most as usize).unwrap_or(&mut []);
        if image.read_at(part, page * page_bytes).map_err(Failed)? < part.len() || most == 0 {
            return Err(Failed(libc::EIO));
        }
        for bytes in part.chunks_exact(PAGE_BYTES) {
            put(page, hash(bytes));
            page += 1;
        }
    }
    Ok(())
}
