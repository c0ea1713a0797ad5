//! What is recorded, and its bytes.
//!
//! ```text
//! event    kind and flags (1 byte), time since the event before (ns), then by kind:
//! 1 allocate   address, size, log2 of the alignment if flag 0x20; flag 0x10: zeroed
//! 2 free       address
//! 3 resize     old address, new size
//! 4 resized    new address
//! 5 thread     number
//! 6 new        first page, pages, log2 of the alignment, objects
//! 7 delete     first page
//! 8 grow       first page, pages
//! 9 release    pages
//! ```
//!
//! Numbers are LEB128. Addresses count units of 8 bytes and pages units of 8 KiB; both are the
//! difference to the one before in the block, with the sign in the lowest bit. What does not fit
//! into its type is no event.

/// Bytes that an event takes at most: a kind and five numbers.
pub const EVENT_BYTES_MAX: usize = 1 + 5 * 10;

const ZEROED: u8 = 0x10;
const ALIGNED: u8 = 0x20;
const KIND: u8 = 0x0f;
/// Objects lie on multiples of this.
const UNIT_BITS: u32 = 3;
/// Larger alignments do not fit into an address space.
const ALIGN_LOG2_MAX: u64 = 63;

/// Something that happened. Addresses are multiples of 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A program got an object.
    Allocate {
        /// Where it lies.
        address: u64,
        /// Bytes asked for.
        size: u64,
        /// Logarithm of the alignment asked for, to base 2; 0: the usual one.
        align_log2: u8,
        /// It was to be zero.
        zeroed: bool,
    },
    /// It gave one back.
    Free {
        /// Where it lay.
        address: u64,
    },
    /// It asked for another size. The object is nowhere until [`Event::Resized`] of the same
    /// thread, as its old place may be another object's before its new one is known.
    Resize {
        /// Where it lay.
        address: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// It has another size, and may have moved.
    Resized {
        /// Where it lies; 0 if the request failed, and the object is as it was.
        address: u64,
    },
    /// The events that follow in this lane are this thread's.
    Thread {
        /// Threads are numbered from 1 in the order of their first events.
        number: u32,
    },
    /// The page heap made a span.
    New {
        /// Its first page, counted from the beginning of the heap.
        first: u32,
        /// How many pages it has.
        pages: u32,
        /// Logarithm of the alignment in pages, to base 2.
        align_log2: u8,
        /// How many objects it is for.
        objects: u32,
    },
    /// A span came back.
    Delete {
        /// Its first page.
        first: u32,
    },
    /// A span became longer where it is.
    Grow {
        /// Its first page.
        first: u32,
        /// How many pages it has from now on.
        pages: u32,
    },
    /// `pages` were to be released to the kernel: the program asked, a limit was met, or others
    /// needed memory. A release by the heap's own policy is not recorded.
    Release {
        /// How many; all that can go: [`u32::MAX`].
        pages: u32,
    },
}

impl Event {
    /// Whether it is of the page heap.
    pub const fn is_of_spans(&self) -> bool {
        matches!(
            self,
            Self::New { .. } | Self::Delete { .. } | Self::Grow { .. } | Self::Release { .. }
        )
    }
}

/// Why bytes are no event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// They end within one.
    CutOff,
    /// There is no such kind of event, or not with these flags.
    UnknownKind(u8),
    /// A number is larger than what it counts can be.
    TooLarge,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::CutOff => f.write_str("an event is cut off"),
            Self::UnknownKind(kind) => write!(f, "there is no event of kind {kind:#04x}"),
            Self::TooLarge => f.write_str("a number is too large"),
        }
    }
}

impl core::error::Error for Fault {}

/// What events are written relative to: the one before in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    address: u64,
    page: u32,
}

impl Before {
    /// Before the first event of a block that begins at a time.
    pub const fn block(ns: u64) -> Self {
        Self { ns, address: 0, page: 0 }
    }

    /// Writes an event that happened at `ns`; how many bytes it took. An earlier time than that of
    /// the event before is taken for the same. `None`: it does not fit, and nothing has changed.
    pub fn encode(&mut self, ns: u64, event: &Event, bytes: &mut [u8]) -> Option<usize> {
        let mut next = *self;
        let mut out = Writer { bytes, at: 1 };
        out.number(ns.saturating_sub(next.ns))?;
        next.ns = ns.max(next.ns);
        let kind = match *event {
            Event::Allocate { address, size, align_log2, zeroed } => {
                next.address(&mut out, address)?;
                out.number(size)?;
                if align_log2 > 0 {
                    out.number(align_log2.into())?;
                }
                1 | if zeroed { ZEROED } else { 0 } | if align_log2 > 0 { ALIGNED } else { 0 }
            }
            Event::Free { address } => {
                next.address(&mut out, address)?;
                2
            }
            Event::Resize { address, size } => {
                next.address(&mut out, address)?;
                out.number(size)?;
                3
            }
            Event::Resized { address } => {
                next.address(&mut out, address)?;
                4
            }
            Event::Thread { number } => {
                out.number(number.into())?;
                5
            }
            Event::New { first, pages, align_log2, objects } => {
                next.page(&mut out, first)?;
                out.number(pages.into())?;
                out.number(align_log2.into())?;
                out.number(objects.into())?;
                6
            }
            Event::Delete { first } => {
                next.page(&mut out, first)?;
                7
            }
            Event::Grow { first, pages } => {
                next.page(&mut out, first)?;
                out.number(pages.into())?;
                8
            }
            Event::Release { pages } => {
                out.number(pages.into())?;
                9
            }
        };
        let len = out.at;
        *bytes.first_mut()? = kind;
        *self = next;
        Some(len)
    }

    /// Reads an event; how many bytes it took.
    ///
    /// # Errors
    /// The bytes do not begin with one.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<(Event, usize), Fault> {
        let tag = *bytes.first().ok_or(Fault::CutOff)?;
        let mut from = Reader { bytes, at: 1 };
        let mut next = *self;
        next.ns = next.ns.checked_add(from.number()?).ok_or(Fault::TooLarge)?;
        let (kind, flags) = (tag & KIND, tag & !KIND);
        if flags & !(ZEROED | ALIGNED) != 0 || (flags != 0 && kind != 1) {
            return Err(Fault::UnknownKind(tag));
        }
        let event = match kind {
            1 => Event::Allocate {
                address: next.read_address(&mut from)?,
                size: from.number()?,
                align_log2: if flags & ALIGNED != 0 { from.log2()? } else { 0 },
                zeroed: flags & ZEROED != 0,
            },
            2 => Event::Free { address: next.read_address(&mut from)? },
            3 => Event::Resize { address: next.read_address(&mut from)?, size: from.number()? },
            4 => Event::Resized { address: next.read_address(&mut from)? },
            5 => Event::Thread { number: from.short()? },
            6 => Event::New {
                first: next.read_page(&mut from)?,
                pages: from.short()?,
                align_log2: from.log2()?,
                objects: from.short()?,
            },
            7 => Event::Delete { first: next.read_page(&mut from)? },
            8 => Event::Grow { first: next.read_page(&mut from)?, pages: from.short()? },
            9 => Event::Release { pages: from.short()? },
            _ => return Err(Fault::UnknownKind(tag)),
        };
        *self = next;
        Ok((event, from.at))
    }

    fn address(&mut self, out: &mut Writer<'_>, address: u64) -> Option<()> {
        let units = address >> UNIT_BITS;
        let difference = units.wrapping_sub(self.address) as i64;
        self.address = units;
        out.number(fold(difference))
    }

    fn read_address(&mut self, from: &mut Reader<'_>) -> Result<u64, Fault> {
        self.address = self.address.wrapping_add(unfold(from.number()?) as u64);
        if self.address > u64::MAX >> UNIT_BITS {
            return Err(Fault::TooLarge);
        }
        Ok(self.address << UNIT_BITS)
    }

    fn page(&mut self, out: &mut Writer<'_>, page: u32) -> Option<()> {
        let difference = i64::from(page) - i64::from(self.page);
        self.page = page;
        out.number(fold(difference))
    }

    fn read_page(&mut self, from: &mut Reader<'_>) -> Result<u32, Fault> {
        let page = i64::from(self.page).checked_add(unfold(from.number()?));
        self.page = page.and_then(|page| u32::try_from(page).ok()).ok_or(Fault::TooLarge)?;
        Ok(self.page)
    }
}

/// A signed number as an unsigned one that is small if it is near zero.
fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn number(&mut self, mut number: u64) -> Option<()> {
        loop {
            let rest = number >> 7;
            let more = if rest == 0 { 0 } else { 0x80 };
            *self.bytes.get_mut(self.at)? = (number & 0x7f) as u8 | more;
            self.at += 1;
            if rest == 0 {
                return Some(());
            }
            number = rest;
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(Fault::CutOff)?;
            self.at += 1;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(Fault::TooLarge);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Fault::TooLarge)
    }

    fn short(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.number()?).map_err(|_| Fault::TooLarge)
    }

    fn log2(&mut self) -> Result<u8, Fault> {
        let number = self.number()?;
        if number > ALIGN_LOG2_MAX { Err(Fault::TooLarge) } else { Ok(number as u8) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn events() -> impl Strategy<Value = Event> {
        let address = || any::<u64>().prop_map(|address| address & !7);
        prop_oneof![
            (address(), any::<u64>(), 0u8..64, any::<bool>()).prop_map(
                |(address, size, align_log2, zeroed)| Event::Allocate {
                    address,
                    size,
                    align_log2,
                    zeroed
                }
            ),
            address().prop_map(|address| Event::Free { address }),
            (address(), any::<u64>()).prop_map(|(address, size)| Event::Resize { address, size }),
            address().prop_map(|address| Event::Resized { address }),
            any::<u32>().prop_map(|number| Event::Thread { number }),
            (any::<u32>(), any::<u32>(), 0u8..64, any::<u32>()).prop_map(
                |(first, pages, align_log2, objects)| Event::New {
                    first,
                    pages,
                    align_log2,
                    objects
                }
            ),
            any::<u32>().prop_map(|first| Event::Delete { first }),
            any::<(u32, u32)>().prop_map(|(first, pages)| Event::Grow { first, pages }),
            any::<u32>().prop_map(|pages| Event::Release { pages }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            base in any::<u64>(),
            events in prop::collection::vec((any::<u32>(), events()), 1..50),
        ) {
            let base = base >> 8;
            let (mut bytes, mut at, mut ns) = ([0; 50 * EVENT_BYTES_MAX], 0, base);
            let mut before = Before::block(base);
            for (step, event) in &events {
                ns += u64::from(*step);
                let len = before.encode(ns, event, &mut bytes[at..]).unwrap();
                prop_assert!(len <= EVENT_BYTES_MAX);
                at += len;
            }
            let (mut before, mut from, mut ns) = (Before::block(base), 0, base);
            for (step, event) in &events {
                let (read, len) = before.decode(&bytes[from..at]).unwrap();
                from += len;
                ns += u64::from(*step);
                prop_assert_eq!((before.ns, read), (ns, *event));
            }
            prop_assert_eq!(from, at);
        }

        #[test]
        fn any_bytes_are_events_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let (mut before, mut at) = (Before::block(0), 0);
            while let Ok((event, len)) = before.decode(&bytes[at..]) {
                // What was read can be written, in no more bytes.
                let mut again = [0; EVENT_BYTES_MAX];
                let mut same = Before { ns: before.ns, ..before };
                prop_assert!(same.encode(before.ns, &event, &mut again).is_some());
                at += len;
            }
        }

        #[test]
        fn what_is_cut_off_changes_nothing(event in events(), ns in any::<u64>()) {
            let mut bytes = [0; EVENT_BYTES_MAX];
            let len = Before::block(0).encode(ns, &event, &mut bytes).unwrap();
            for short in 0..len {
                let mut before = Before::block(0);
                prop_assert_eq!(before.decode(&bytes[..short]), Err(Fault::CutOff));
                prop_assert_eq!(before.encode(ns, &event, &mut [0; EVENT_BYTES_MAX][..short]), None);
                prop_assert_eq!(before, Before::block(0));
            }
        }
    }

    #[test]
    fn usual_events_are_short() {
        let mut before = Before::block(0);
        let mut bytes = [0; EVENT_BYTES_MAX];
        let mut lens = Vec::new();
        let mut ns = 0;
        for address in [0x7000_0000_0000u64, 0x7000_0000_0040, 0x7000_0000_0080] {
            ns += 100;
            let event = Event::Allocate { address, size: 48, align_log2: 0, zeroed: false };
            lens.push(before.encode(ns, &event, &mut bytes).unwrap());
        }
        assert_eq!(lens[1..], [4, 4]);
    }

    #[test]
    fn numbers_of_too_many_bits_are_refused() {
        let decode = |bytes: &[u8]| Before::block(0).decode(bytes).map(|(event, _)| event);
        let ten = [0xff; 9];
        let largest = [&[5], &ten[..], &[1]].concat();
        assert!(decode(&[&largest[..], &[3]].concat()).is_ok());
        let larger = [&[5], &ten[..], &[2, 3]].concat();
        assert_eq!(decode(&larger), Err(Fault::TooLarge));
        assert_eq!(decode(&[5, 0, 0xff, 0xff, 0xff, 0xff, 0x1f]), Err(Fault::TooLarge));
        assert_eq!(decode(&[0x15, 0, 1]), Err(Fault::UnknownKind(0x15)));
        assert_eq!(decode(&[0, 0]), Err(Fault::UnknownKind(0)));
        assert_eq!(decode(&[7, 0, 1]), Err(Fault::TooLarge), "a page before the first");
    }
}
