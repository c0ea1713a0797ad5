//! Size templates: which allocator serves which range of sizes.

use core::fmt;

use spandrel_pages::{AllocatorId, ByteSize, KIB, ParseSizeError};

/// Most ranges that a template may have.
pub const MAX_RANGES: usize = 16;

/// Sizes from `from` up to but not including `to`, and the allocator that serves them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First size in bytes.
    pub from: usize,
    /// One past the last size in bytes; `usize::MAX` when open.
    pub to: usize,
    /// The allocator that serves them.
    pub allocator: AllocatorId,
}

/// A complete map from sizes to allocators: it begins at 0, ends open, and has
/// neither gap nor overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    ranges: [Range; MAX_RANGES],
    len: usize,
}

/// Why a template was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TemplateError<'a> {
    /// An entry is not of the form `FROM-TO:ALLOCATOR`.
    Malformed(&'a str),
    /// A bound is not a size.
    Size(&'a str, ParseSizeError),
    /// An allocator of that name does not exist.
    UnknownAllocator(&'a str),
    /// The range ends where or before it begins.
    Empty(usize, usize),
    /// No allocator serves sizes between these two.
    Gap(usize, usize),
    /// Sizes between these two are served twice.
    Overlap(usize, usize),
    /// There are no ranges at all.
    NoRanges,
    /// There are more than [`MAX_RANGES`].
    TooMany,
    /// The last range has an end: no allocator serves larger sizes.
    NotOpen(usize),
}

impl fmt::Display for TemplateError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: &usize| ByteSize(*bytes);
        match self {
            Self::Malformed(entry) => {
                write!(f, "'{entry}' is not of the form FROM-TO:ALLOCATOR, as in 4KiB-64KiB:sys")
            }
            Self::Size(text, why) => write!(f, "'{text}' is not a size: {why}"),
            Self::UnknownAllocator(name) => write!(
                f,
                "'{name}' is not an allocator: known are native, sys, jemalloc, mimalloc, tcmalloc and mmap"
            ),
            Self::Empty(from, to) => {
                write!(f, "the range {}-{} is empty", size(from), size(to))
            }
            Self::Gap(from, to) => write!(
                f,
                "no allocator serves sizes from {} up to {}: close the gap",
                size(from),
                size(to)
            ),
            Self::Overlap(from, to) => write!(
                f,
                "sizes from {} up to {} are served twice: ranges are half open and ascending",
                size(from),
                size(to)
            ),
            Self::NoRanges => f.write_str("there is no range: the smallest template is 0-:sys"),
            Self::TooMany => write!(f, "there are more than {MAX_RANGES} ranges"),
            Self::NotOpen(end) => write!(
                f,
                "no allocator serves sizes from {}: end the last range open, as in {}-:mmap",
                size(end),
                size(end)
            ),
        }
    }
}

impl core::error::Error for TemplateError<'_> {}

/// Collects ranges in ascending order and refuses the first that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    template: Template,
}

impl Builder {
    /// No ranges yet.
    pub const fn new() -> Self {
        const NONE: Range = Range { from: 0, to: 0, allocator: AllocatorId::Sys };
        Builder { template: Template { ranges: [NONE; MAX_RANGES], len: 0 } }
    }

    /// Adds a range given as text: `bounds` is `FROM-TO` or `FROM-`.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn add<'a>(
        &mut self,
        bounds: &'a str,
        allocator: &'a str,
    ) -> Result<(), TemplateError<'a>> {
        let (from, to) = bounds.split_once('-').ok_or(TemplateError::Malformed(bounds))?;
        let size = |text: &'a str| {
            ByteSize::parse(text).map(|s| s.0).map_err(|why| TemplateError::Size(text.trim(), why))
        };
        let from = size(from)?;
        let to = if to.trim().is_empty() { usize::MAX } else { size(to)? };
        let allocator = AllocatorId::parse(allocator.trim())
            .ok_or(TemplateError::UnknownAllocator(allocator.trim()))?;
        self.push(Range { from, to, allocator })
    }

    /// Adds a range.
    ///
    /// # Errors
    /// It is empty, leaves a gap, overlaps, or is one too many.
    pub fn push(&mut self, range: Range) -> Result<(), TemplateError<'static>> {
        let next = self.template.ranges().last().map_or(0, |last| last.to);
        if range.from >= range.to {
            return Err(TemplateError::Empty(range.from, range.to));
        }
        if range.from > next {
            return Err(TemplateError::Gap(next, range.from));
        }
        if range.from < next {
            return Err(TemplateError::Overlap(range.from, next.min(range.to)));
        }
        let slot = self.template.ranges.get_mut(self.template.len).ok_or(TemplateError::TooMany)?;
        *slot = range;
        self.template.len += 1;
        Ok(())
    }

    /// The finished template.
    ///
    /// # Errors
    /// There are no ranges, or the last one is not open.
    pub fn finish(self) -> Result<Template, TemplateError<'static>> {
        match self.template.ranges().last() {
            None => Err(TemplateError::NoRanges),
            Some(last) if last.to != usize::MAX => Err(TemplateError::NotOpen(last.to)),
            Some(_) => Ok(self.template),
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Template {
    /// Parses `0-4KiB:jemalloc,4KiB-64KiB:sys,64KiB-:mmap`.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn parse(text: &str) -> Result<Self, TemplateError<'_>> {
        let mut builder = Builder::new();
        for entry in text.split(',').filter(|entry| !entry.trim().is_empty()) {
            let (bounds, allocator) =
                entry.split_once(':').ok_or(TemplateError::Malformed(entry.trim()))?;
            builder.add(bounds, allocator)?;
        }
        builder.finish()
    }

    const fn of_three(first: AllocatorId, a: usize, second: AllocatorId, b: usize) -> Self {
        let last = Range { from: b, to: usize::MAX, allocator: AllocatorId::Mmap };
        let mut ranges = [last; MAX_RANGES];
        ranges[0] = Range { from: 0, to: a, allocator: first };
        ranges[1] = Range { from: a, to: b, allocator: second };
        Template { ranges, len: 3 }
    }

    /// The paper's preset (Brug, section III.A): jemalloc to 4 KiB, glibc to
    /// 64 KiB, page-mapped above.
    pub const BRUG: Self =
        Self::of_three(AllocatorId::Jemalloc, 4 * KIB, AllocatorId::Sys, 64 * KIB);

    /// Our preset: our own allocator to 128 KiB, page-mapped above.
    pub const PRESET: Self = {
        let last = Range { from: 128 * KIB, to: usize::MAX, allocator: AllocatorId::Mmap };
        let mut ranges = [last; MAX_RANGES];
        ranges[0] = Range { from: 0, to: 128 * KIB, allocator: AllocatorId::Native };
        Template { ranges, len: 2 }
    };

    /// The ranges in ascending order.
    pub fn ranges(&self) -> &[Range] {
        self.ranges.get(..self.len).unwrap_or(&[])
    }

    /// The allocator that serves a request of `size` bytes.
    pub fn decide(&self, size: usize) -> AllocatorId {
        self.ranges()
            .iter()
            .find(|range| size < range.to || range.to == usize::MAX)
            .map_or(AllocatorId::Sys, |range| range.allocator)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}-", ByteSize(range.from))?;
            if range.to != usize::MAX {
                write!(f, "{}", ByteSize(range.to))?;
            }
            write!(f, ":{}", range.allocator.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn the_papers_preset() {
        let parsed = Template::parse("0-4KiB:jemalloc,4KiB-64KiB:sys,64KiB-:mmap").unwrap();
        for size in [0, 4095, 4096, 65535, 65536, usize::MAX] {
            assert_eq!(parsed.decide(size), Template::BRUG.decide(size), "{size}");
        }
        assert_eq!(Template::BRUG.decide(4095), AllocatorId::Jemalloc);
        assert_eq!(Template::BRUG.decide(4096), AllocatorId::Sys);
        assert_eq!(Template::BRUG.decide(64 * KIB), AllocatorId::Mmap);
    }

    #[test]
    fn what_does_not_cover_every_size_once_is_refused() {
        for (text, error) in [
            ("", TemplateError::NoRanges),
            ("1K-:sys", TemplateError::Gap(0, 1024)),
            ("0-1K:sys,2K-:mmap", TemplateError::Gap(1024, 2048)),
            ("0-2K:sys,1K-:mmap", TemplateError::Overlap(1024, 2048)),
            ("0-2K:sys", TemplateError::NotOpen(2048)),
            ("0-0:sys", TemplateError::Empty(0, 0)),
            ("0-:hoard", TemplateError::UnknownAllocator("hoard")),
            ("0-x:sys", TemplateError::Size("x", ParseSizeError::NoNumber)),
            ("0:sys", TemplateError::Malformed("0")),
            ("0-", TemplateError::Malformed("0-")),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
        let many: std::string::String =
            (0..17).map(|i| std::format!("{i}-{}:sys,", i + 1)).collect();
        assert_eq!(Template::parse(&many), Err(TemplateError::TooMany));
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            mut cuts in prop::collection::btree_set(1usize..1 << 40, 0..MAX_RANGES),
            names in prop::collection::vec(0u8..5, MAX_RANGES),
        ) {
            let mut builder = Builder::new();
            let mut from = 0;
            let mut names = names.into_iter().map(|n| AllocatorId::from_byte(n).unwrap());
            while let Some(to) = cuts.pop_first() {
                builder.push(Range { from, to, allocator: names.next().unwrap() }).unwrap();
                from = to;
            }
            builder.push(Range { from, to: usize::MAX, allocator: AllocatorId::Sys }).unwrap();
            let template = builder.finish().unwrap();
            let text = template.to_string();
            prop_assert_eq!(Template::parse(&text), Ok(template));
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC*") {
            let _ = Template::parse(&text);
        }
    }
}
