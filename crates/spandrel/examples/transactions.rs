//! A small library for transactions on top of a heap, and the proof that it holds: every image that a power failure may
//! leave of ten transfers between accounts is recovered, and no money is lost and no object leaks.
//!
//!     cargo run --release --features simulator --example transactions
//!
//! A transaction may free objects and be cut off: then they must still be there. So the library has the heap hand it what is freed
//! (`set_free_callback`), and frees that when the transaction has ended (`safe_free`). It needs nothing else of the heap.

use spandrel::heap::collections::{Vector, VectorHead};
use spandrel::heap::simulator::{Bounds, Memory, Point};
use spandrel::heap::{Error, Heap, Medium, PPtr, RootType, Trace};
use std::cell::RefCell;
use std::ptr::NonNull;

thread_local! {
    /// What was freed in the transaction that the thread is in.
    static FREED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Where a word was changed, and what was there.
type Entry = [u64; 2];

/// Transactions of one heap, one at a time.
struct Transactions<'h, M: Medium> {
    heap: &'h Heap<M>,
    log: Vector<'h, Entry, M>,
}

impl<'h, M: Medium> Transactions<'h, M> {
    /// To be called when the heap was opened, and before it is collected: undoes what was cut off.
    fn open(heap: &'h Heap<M>) -> Result<Self, Error> {
        let mut log = Vector::<Entry, M>::open(heap, "undo")?;
        while let Some([at, before]) = log.get(log.len().wrapping_sub(1)) {
            store(heap, at as usize, before);
            heap.medium().fence();
            log.pop();
        }
        extern "C" fn note(object: *mut u8, _: *mut u8) {
            FREED.with_borrow_mut(|freed| freed.push(object as usize));
        }
        // SAFETY: it notes an address.
        unsafe { heap.set_free_callback(Some(note), std::ptr::null_mut()) };
        Ok(Self { heap, log })
    }

    /// All that `work` stores, or nothing of it.
    fn run(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        work(self)?;
        self.heap.medium().fence();
        self.log.truncate(0);
        for object in FREED.take() {
            // SAFETY: it was freed, and the transaction is durable.
            unsafe {
                self.heap.safe_free(NonNull::new(object as *mut u8).ok_or(Error::Foreign(0))?)?
            };
        }
        Ok(())
    }

    fn store(&mut self, place: PPtr<u64>, word: u64) -> Result<(), Error> {
        let at = place.offset().ok_or(Error::Foreign(0))?;
        // SAFETY: nobody else has the heap.
        let before = unsafe { self.heap.read(place) }.ok_or(Error::Foreign(at))?;
        self.log.push([at as u64, before])?;
        store(self.heap, at, word);
        Ok(())
    }
}

fn store<M: Medium>(heap: &Heap<M>, at: usize, word: u64) {
    // SAFETY: a word of an object; nobody else has the heap.
    unsafe { heap.medium().store_word(at, word) };
    heap.medium().write_back(at, 8);
}

/// What an account is: a pointer to how much there is, which is another object after each transfer.
#[derive(Trace)]
#[repr(C)]
struct Accounts {
    balances: [PPtr<u64>; 4],
}

const TYPES: &[RootType<'_>] =
    &[RootType::of::<Accounts>("accounts"), RootType::of::<VectorHead<Entry>>("undo")];
const ALL: u64 = 400;

/// Moves an amount by two new objects; the old ones are freed.
fn transfer(transactions: &mut Transactions<'_, &Memory>, round: u64) -> Result<(), Error> {
    let (from, to) = ((round % 4) as usize, ((round * 3 + 1) % 4) as usize);
    let accounts = transactions.heap.root::<Accounts>("accounts")?.get();
    transactions.run(|all| {
        for (account, add) in [(from, 0u64.wrapping_sub(round)), (to, round)] {
            let place = PPtr::<u64>::to(accounts.offset().unwrap_or(0) + account * 8);
            // SAFETY: nobody else has the heap.
            let old = PPtr::<u64>::from_raw(unsafe { all.heap.read(place) }.unwrap_or(0));
            // SAFETY: as above.
            let balance = unsafe { all.heap.read(old) }.unwrap_or(0);
            let new = all.heap.new_object(balance.wrapping_add(add))?;
            all.store(place, new.raw())?;
            // SAFETY: nothing leads to it, if the transaction ends.
            unsafe { all.heap.free_object(old)? };
        }
        Ok(())
    })
}

/// What there is in all accounts.
fn sum(heap: &Heap<&Memory>) -> Result<u64, Error> {
    let accounts = heap.root::<Accounts>("accounts")?.get();
    let balances = heap.address(accounts).map(|accounts| {
        // SAFETY: nobody else has the heap.
        unsafe { accounts.as_ref() }.balances
    });
    // SAFETY: as above.
    Ok(balances.iter().flatten().filter_map(|balance| unsafe { heap.read(*balance) }).sum())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::new(2 << 20);
    let heap = Heap::create(&memory, [1, 2], 0, 0)?;
    let mut balances = [PPtr::NULL; 4];
    for balance in &mut balances {
        *balance = heap.new_object(ALL / 4)?;
    }
    heap.root::<Accounts>("accounts")?.set(heap.new_object(Accounts { balances })?)?;
    let mut transactions = Transactions::open(&heap)?;
    memory.note(0);
    for round in 1..=10 {
        transfer(&mut transactions, round)?;
        memory.note(round);
    }
    drop(transactions);
    heap.close()?;

    let check = |image: &[u8], point: &Point<'_>| -> Result<(), String> {
        if point.notes.is_empty() {
            return Ok(());
        }
        let look = || -> Result<(u64, u64), Error> {
            let after = Memory::from_image(image);
            // First the library, then the heap: what was freed in a transaction that was cut off is needed again.
            let (mut heap, _) = Heap::open(&after, 0, None)?;
            if let Err(Error::NeedsRecovery) = Transactions::open(&heap).map(drop) {
                return Err(Error::NeedsRecovery);
            }
            let collected = heap.collect(TYPES)?;
            Ok((sum(&heap)?, collected.live))
        };
        let (sum, live) = look().map_err(|why| why.to_string())?;
        // Four balances and what leads to them, and the log of at most two objects.
        match (sum, live) {
            (ALL, 6..=7) => Ok(()),
            _ => Err(format!("{sum} in the accounts, {live} objects")),
        }
    };
    let seen = memory.journal().images(&Bounds { most: 256, ..Bounds::default() }, check);
    let seen = seen.map_err(|found| found.to_string())?;
    println!(
        "{} moments, {} images: {ALL} in the accounts in each, and nothing leaks",
        seen.points, seen.images
    );
    Ok(())
}
