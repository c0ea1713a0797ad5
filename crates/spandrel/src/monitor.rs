//! The object monitor: what reallocation costs, object by object.

use spandrel_adaptive as adaptive;
pub use spandrel_adaptive::ObjectRecord;

/// Watches objects while it exists; see [`monitor`].
#[derive(Debug)]
#[must_use = "the monitor stops when it is dropped"]
pub struct Monitor(());

/// Watches all objects of the process that are resized, until what it returns is dropped (Brug,
/// III.A): how often, how long that took, where they went. Requests take some hundred nanoseconds
/// longer meanwhile.
///
/// Up to 4,096 objects are known, from their first reallocation on and after their end; where there
/// are more, those that were resized least make room. Resizing through an allocator handle is not seen.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();
/// let monitor = spandrel::monitor();
/// let mut numbers: Vec<u64> = Vec::with_capacity(4);
/// numbers.extend(0..100_000);
/// let record = monitor.object(numbers.as_ptr()).expect("it has grown");
/// assert!(record.reallocations > 0 && record.size >= 800_000);
/// ```
pub fn monitor() -> Monitor {
    adaptive::monitor_begin();
    Monitor(())
}

impl Monitor {
    /// What is known of the live object that begins here. `None`: it was not resized while a monitor
    /// ran, or made room for others.
    pub fn object<T: ?Sized>(&self, object: *const T) -> Option<ObjectRecord> {
        adaptive::monitored(object.addr())
    }

    /// Fills `into` with the records of most reallocations, the most first, of live objects and of
    /// those that have ended; how many there are.
    pub fn most_resized(&self, into: &mut [ObjectRecord]) -> usize {
        adaptive::most_resized(into)
    }

    /// Records that made room for others.
    pub fn lost(&self) -> u64 {
        adaptive::monitor_lost()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        adaptive::monitor_end();
    }
}
