//! Operations are generated on a processor of their own, if there is one, a few batches ahead.

use crate::error::Error;
use crate::operation::{Event, Operations};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Batches between generator and page heap: enough that neither waits for the other's hiccups.
const BATCHES: usize = 8;

/// Calls `each` with one batch after the other, until there are no more or it fails.
pub(crate) fn each(
    source: &mut (impl Operations + Send),
    mut each: impl FnMut(&[Event]) -> Result<(), Error>,
) -> Result<(), Error> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        let mut batch = Vec::new();
        loop {
            source.fill(&mut batch)?;
            if batch.is_empty() {
                return Ok(());
            }
            each(&batch)?;
        }
    }
    let (full, filled) = sync_channel::<Result<Vec<Event>, Error>>(BATCHES);
    let (empty, emptied) = sync_channel(BATCHES);
    thread::scope(|scope| {
        scope.spawn(move || generate(source, &full, &emptied));
        // Ends when the generator drops its end; when this fails, the generator finds out by
        // having no receiver left.
        for batch in filled {
            let batch = batch?;
            each(&batch)?;
            // The generator may have ended; then it is not wanted back.
            let _ = empty.send(batch);
        }
        Ok(())
    })
}

fn generate(
    source: &mut impl Operations,
    full: &SyncSender<Result<Vec<Event>, Error>>,
    emptied: &Receiver<Vec<Event>>,
) {
    loop {
        let mut batch = emptied.try_recv().unwrap_or_default();
        match source.fill(&mut batch) {
            Ok(()) if batch.is_empty() => return,
            Ok(()) if full.send(Ok(batch)).is_ok() => {}
            Ok(()) => return,
            Err(why) => {
                let _ = full.send(Err(why));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;

    struct Count(u64, u64);

    impl Operations for Count {
        fn fill(&mut self, batch: &mut Vec<Event>) -> Result<(), Error> {
            batch.clear();
            if self.0 == self.1 {
                return if self.1 == 13 { Err(Error::new("unlucky")) } else { Ok(()) };
            }
            batch.push(Event { at_ms: self.0, operation: Operation::Pass });
            self.0 += 1;
            Ok(())
        }

        fn bookkeeping_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn every_batch_arrives_in_order() {
        let mut seen = Vec::new();
        each(&mut Count(0, 1000), |batch| {
            seen.extend(batch.iter().map(|event| event.at_ms));
            Ok(())
        })
        .unwrap();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn failures_end_both_sides() {
        assert_eq!(each(&mut Count(0, 13), |_| Ok(())).unwrap_err().message, "unlucky");
        let failing = each(&mut Count(0, 1 << 40), |batch| {
            if batch[0].at_ms == 100 { Err(Error::new("enough")) } else { Ok(()) }
        });
        assert_eq!(failing.unwrap_err().message, "enough");
    }
}
