//! The thread that brings the log into the state's file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spandrel_durable::control::Control;
use spandrel_durable::replica::Replica;
use spandrel_durable::store::Files;
use spandrel_pmem::Failed;
use spandrel_redolog::Shape;

/// A file that has what the log has is synced after this time without a batch.
const IDLE: Duration = Duration::from_millis(100);
/// How long the thread sleeps where writers go on. If each record woke it, each batch would take a system call more, and a processor from the program.
/// It is short beside the time in which a writer fills a log.
const NAP: Duration = Duration::from_millis(1);
/// How long the thread sleeps at most.
const SLEEP_MS: u32 = 1000;

/// Follows the ring until the front end has ended.
pub(super) fn follow(
    files: &'static Files,
    control: &Control,
    mut replica: Replica<'_, Files>,
    shape: Shape,
) {
    let followed =
        catch_unwind(AssertUnwindSafe(|| follow_on(files, control, &mut replica, shape)));
    match followed {
        Ok(Ok(())) => {}
        Ok(Err(why)) => control.fail(why.0),
        // A fault of this library: the front end must not wait.
        Err(_) => control.fail(1),
    }
}

fn follow_on(
    files: &Files,
    control: &Control,
    replica: &mut Replica<'_, Files>,
    shape: Shape,
) -> Result<(), Failed> {
    let lengthen = |bytes| files.lengthen(bytes);
    let (tail, _) = control.bells();
    let mut settled = replica.at();
    let settle = |settled: &mut u64, replica: &mut Replica<'_, Files>| -> Result<(), Failed> {
        let now = replica.settle(false)?;
        // Before the front end may write there.
        files.ring().forget(shape, *settled, now);
        control.release(now);
        *settled = now;
        Ok(())
    };
    let mut quiet_since = Instant::now();
    loop {
        let seen = tail.seen();
        let is_closing = control.is_closing();
        if replica.at() < control.tail() {
            replica.step(&lengthen)?;
            control.note_applied(1);
            quiet_since = Instant::now();
            let is_due = replica.at() - settled > shape.capacity / 4;
            if is_due || control.take_asked() {
                settle(&mut settled, replica)?;
            }
            continue;
        }
        if is_closing {
            control.release(replica.settle(true)?);
            return Ok(());
        }
        let is_behind = settled != replica.at();
        if is_behind && (control.take_asked() || quiet_since.elapsed() >= IDLE) {
            settle(&mut settled, replica)?;
            continue;
        }
        if is_behind || quiet_since.elapsed() < IDLE {
            std::thread::sleep(NAP);
        } else {
            tail.wait(seen, SLEEP_MS);
        }
    }
}
