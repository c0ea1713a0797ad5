//! What the tuner has learnt, as text and as JSON, written without allocating.

use core::fmt::{self, Display};

use spandrel_pages::{AllocatorId, ByteSize};
use spandrel_policy::Operation;
use spandrel_policy::tuner::{RowView, Subject, sizes_of};

use crate::tuner::with_learnt;

/// A member of a process's object; nothing before the first window.
pub(crate) struct LearntJson;

/// Lines of a process's text; nothing before the first window.
pub(crate) struct LearntText;

fn operation(subject: Subject) -> &'static str {
    match subject.operation {
        Operation::Allocate => "allocate",
        Operation::Grow => "grow",
    }
}

/// The allocators of which something is known, and nanoseconds.
fn known(row: &RowView) -> impl Iterator<Item = (AllocatorId, f32)> {
    AllocatorId::ALL.into_iter().zip(row.nanos).filter_map(|(id, nanos)| Some((id, nanos?)))
}

impl Display for LearntJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_learnt(|tuner| {
            let (windows, spent) = (tuner.windows(), tuner.spent());
            if windows == 0 {
                return Ok(());
            }
            write!(f, "\"tuner\":{{\"windows\":{windows},\"spent\":{spent:.5},\"rows\":[")?;
            let mut comma = "";
            for row in tuner.rows() {
                let (from, to) = sizes_of(row.subject.row);
                write!(
                    f,
                    "{comma}{{\"operation\":\"{}\",\"from\":{from},\"to\":{to},\"usual\":\"{}\",\
                     \"chosen\":\"{}\",\"on_trial\":{},\"changes\":{},\"share\":{:.4},\"nanos\":{{",
                    operation(row.subject),
                    row.usual.name(),
                    row.chosen.name(),
                    row.on_trial,
                    row.changes,
                    row.share,
                )?;
                comma = "";
                for (id, nanos) in known(&row) {
                    write!(f, "{comma}\"{}\":{nanos:.1}", id.name())?;
                    comma = ",";
                }
                f.write_str("}}")?;
                comma = ",";
            }
            f.write_str("],\"changes\":[")?;
            comma = "";
            for change in tuner.changes() {
                let (from, to) = sizes_of(change.subject.row);
                write!(
                    f,
                    "{comma}{{\"after_ms\":{},\"operation\":\"{}\",\"from\":{from},\"to\":{to},\
                     \"allocator\":\"{}\",\"on_trial\":{}}}",
                    change.after_ms,
                    operation(change.subject),
                    change.arm.name(),
                    change.trial,
                )?;
                comma = ",";
            }
            f.write_str("]},")
        })
    }
}

impl Display for LearntText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_learnt(|tuner| {
            let (windows, spent) = (tuner.windows(), tuner.spent());
            if windows == 0 {
                return Ok(());
            }
            writeln!(
                f,
                "  learnt from {windows} looks of a millisecond, which took {:.2} % of the time; \
                 nanoseconds of an object:",
                spent * 100.0
            )?;
            for row in tuner.rows() {
                let (from, to) = sizes_of(row.subject.row);
                write!(
                    f,
                    "    {:<8} {:>9} to {:>9}, {:>4.1} % of the time: ",
                    operation(row.subject),
                    ByteSize(from),
                    ByteSize(to),
                    row.share * 100.0
                )?;
                for (id, nanos) in known(&row) {
                    write!(f, "{} {nanos:.0}, ", id.name())?;
                }
                let trial = if row.on_trial { " on trial" } else { "" };
                writeln!(f, "served by {}{trial}", row.chosen.name())?;
            }
            Ok(())
        })
    }
}
