//! Why the bytes of a log are not accepted.

/// What is wrong with a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The file is no log.
    NotALog,
    /// The log is of another version of the format: the last byte of its first word.
    Version(u8),
    /// The log is that of another image.
    Foreign,
    /// The log continues another state of the image: that of a copy, an older or a newer one.
    Stale,
    /// The image needs records, and the log has none.
    Missing,
    /// The log is damaged: records that were durable are missing.
    Damaged,
    /// The caller's buffer is too small.
    Buffer,
}
