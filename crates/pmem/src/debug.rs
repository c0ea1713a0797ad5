//! `Debug` of media: where they lie and how long they are, and nothing of what they hold.

use core::fmt;

use crate::medium::Medium;

fn show(name: &str, medium: &impl Medium, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("base", &medium.base())
        .field("bytes", &medium.bytes())
        .field("limit", &medium.limit())
        .finish_non_exhaustive()
}

macro_rules! shown {
    ($($(#[$condition:meta])? $medium:ty: $name:literal),+ $(,)?) => {$(
        $(#[$condition])?
        impl fmt::Debug for $medium {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show($name, self, f)
            }
        }
    )+};
}

shown!(
    crate::File: "File",
    crate::Mapped: "Mapped",
    crate::snapshot::Snapshot: "Snapshot",
    #[cfg(any(test, feature = "simulator"))]
    crate::simulator::Memory: "Memory",
);

impl fmt::Debug for crate::Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media")
            .field("guarantee", &self.guarantee())
            .field("base", &self.base())
            .field("bytes", &self.bytes())
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for crate::loan::Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").finish_non_exhaustive()
    }
}
