//! Statistics as text and as JSON, written without allocating.

use core::fmt::{self, Display};

use spandrel_os::budget;
use spandrel_os::degrade::{self, Optional};
use spandrel_os::env;
use spandrel_os::usage::{self, Usage};
use spandrel_pages::{AllocatorId, ByteSize, Figure};

use crate::learnt::{LearntJson, LearntText};
use crate::modes::current_mode;
use crate::sites;
use crate::start::experiment;
use crate::stats::{RequestRow, Stats};

/// Version of the JSON form.
const FORMAT: u32 = 1;

/// Statistics as one JSON object.
pub struct Json<'a>(pub &'a Stats);

/// Statistics as a table for people.
pub struct Text<'a>(pub &'a Stats);

/// Text within a JSON string.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
                    c => write!(f, "{c}")?,
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

impl Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.0;
        write!(
            f,
            "{{\"format\":{FORMAT},\"version\":\"{}\",\"pid\":{},\"program\":\"{}\",\"mode\":\"{}\",\
             \"counting\":{},",
            env!("CARGO_PKG_VERSION"),
            env::pid(),
            Escaped(env::program()),
            current_mode(),
            stats.counting,
        )?;
        if let Some((name, group)) = experiment() {
            write!(f, "\"experiment\":\"{name}\",\"group\":\"{group}\",")?;
        }
        let Usage { cpu_us, peak_bytes, faults } = usage::of_process();
        write!(
            f,
            "\"usage\":{{\"cpu_us\":{cpu_us},\"peak_bytes\":{peak_bytes},\"faults\":{faults}}},\
             \"requests\":["
        )?;
        let mut comma = "";
        for row in stats.requests() {
            write!(
                f,
                "{comma}{{\"backend\":\"{}\",\"from\":{},\"to\":{},\"allocs\":{},\
                 \"alloc_bytes\":{},\"reallocs\":{},\"realloc_bytes\":{},\
                 \"frees\":0}}",
                row.allocator.name(),
                row.from,
                row.to,
                row.allocs,
                row.alloc_bytes,
                row.reallocs,
                row.realloc_bytes,
            )?;
            comma = ",";
        }
        for id in AllocatorId::ALL {
            let frees = stats.frees(id);
            if frees > 0 {
                write!(
                    f,
                    "{comma}{{\"backend\":\"{}\",\"from\":0,\"to\":0,\"allocs\":0,\
                     \"alloc_bytes\":0,\"reallocs\":0,\"realloc_bytes\":0,\"frees\":{frees}}}",
                    id.name(),
                )?;
                comma = ",";
            }
        }
        let (realloc, mmap) = (&stats.realloc, &stats.mmap);
        write!(
            f,
            "],\"realloc\":{{\"in_place\":{},\"moved_pages\":{},\"copied\":{},\"copied_bytes\":{},\
             \"migrated\":{}}},\"mmap\":{{\"live_slots\":{},\"live_bytes\":{},\"warm_bytes\":{},\
             \"faults_avoided_bytes\":{}}},",
            realloc.in_place,
            realloc.moved_pages,
            realloc.copied,
            realloc.copied_bytes,
            realloc.migrated,
            mmap.live_slots,
            mmap.live_bytes,
            mmap.warm_bytes,
            mmap.reused_bytes,
        )?;
        if let Some(figures) = &stats.native {
            let mut before = "\"native\":{";
            for (figure, value) in Figure::ALL.iter().zip(figures) {
                write!(f, "{before}\"{}\":{value}", figure.name())?;
                before = ",";
            }
            f.write_str("},")?;
        }
        LearntJson.fmt(f)?;
        f.write_str("\"degraded\":[")?;
        let mut comma = "";
        for what in Optional::ALL {
            let (count, errno) = degrade::count(what);
            if count > 0 {
                let name = what.name();
                write!(f, "{comma}{{\"what\":\"{name}\",\"errno\":{errno},\"count\":{count}}}")?;
                comma = ",";
            }
        }
        writeln!(f, "],\"sites\":{}}}", sites::Json)
    }
}

/// The group of an experiment, as an addition to a line.
struct Group(Option<(&'static str, &'static str)>);

impl Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |(name, group)| write!(f, ", {group} of {name}"))
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.0;
        writeln!(
            f,
            "spandrel: {} (pid {}), mode {}{}",
            Escaped(env::program()),
            env::pid(),
            current_mode(),
            Group(experiment()),
        )?;
        if stats.counting {
            writeln!(
                f,
                "  {:<10} {:>21} {:>14} {:>18} {:>12}",
                "allocator", "sizes", "allocations", "bytes", "reallocations"
            )?;
            for row in stats.requests() {
                let RequestRow {
                    allocator,
                    from,
                    to,
                    allocs,
                    alloc_bytes,
                    reallocs,
                    realloc_bytes,
                } = row;
                let alloc_bytes = alloc_bytes + realloc_bytes;
                let upper = ByteSize(to.saturating_add(1));
                writeln!(
                    f,
                    "  {:<10} {:>9} - {:>9} {allocs:>14} {alloc_bytes:>18} {reallocs:>13}",
                    allocator.name(),
                    Padded(ByteSize(from)),
                    Padded(upper),
                )?;
            }
            for id in AllocatorId::ALL {
                if stats.frees(id) > 0 {
                    writeln!(f, "  {:<10} {:>21} {:>14}", id.name(), "frees", stats.frees(id))?;
                }
            }
        }
        let (realloc, mmap) = (&stats.realloc, &stats.mmap);
        writeln!(
            f,
            "  reallocations: {} in place, {} by page tables, {} copied, {} migrated; {} bytes copied",
            realloc.in_place,
            realloc.moved_pages,
            realloc.copied,
            realloc.migrated,
            realloc.copied_bytes
        )?;
        writeln!(
            f,
            "  mmap backend: {} object{} of {} bytes, {} bytes warm, {} bytes reused without faults",
            mmap.live_slots,
            plural(mmap.live_slots as u64),
            mmap.live_bytes,
            mmap.warm_bytes,
            mmap.reused_bytes
        )?;
        if let Some(figures) = &stats.native {
            let size = |figure: Figure| ByteSize(figures[figure as usize] as usize);
            writeln!(
                f,
                "  native allocator: {} live, of which {} on whole huge pages and {} in caches; {} \
                 kept empty, {} free beside live objects, {} gone back of those huge pages",
                size(Figure::Live),
                size(Figure::Covered),
                ByteSize(size(Figure::InCaches).0.saturating_add(size(Figure::InTransfer).0)),
                size(Figure::Cached),
                size(Figure::Free),
                size(Figure::Unbacked),
            )?;
        }
        LearntText.fmt(f)?;
        for (limit, kind) in [(budget::hard(), "hard"), (budget::soft(), "soft")] {
            if let Some(limit) = limit {
                writeln!(
                    f,
                    "  {kind} limit: {}; {} held with what is page-mapped, {} refusal{}",
                    ByteSize(limit),
                    ByteSize(budget::held()),
                    budget::refused(),
                    plural(budget::refused()),
                )?;
            }
        }
        for what in Optional::ALL {
            let (count, errno) = degrade::count(what);
            if count > 0 {
                let s = plural(count);
                writeln!(f, "  degraded: {} refused {count} time{s} (errno {errno})", what.name())?;
            }
        }
        Ok(())
    }
}

/// The ending of a noun beside this number.
fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// A size that obeys the width of the format.
struct Padded(ByteSize);

impl Display for Padded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut line = spandrel_os::message::Line::new();
        write!(line, "{}", self.0)?;
        f.pad(core::str::from_utf8(line.as_bytes()).unwrap_or(""))
    }
}
