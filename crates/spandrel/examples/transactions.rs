//! Transfers between accounts, each one transaction over three collections.
//!
//! The proof that a transfer is all or nothing: the program recovers every image that a power failure may leave of ten transfers. In each
//! image the sum is the same, the record agrees with the accounts, and no object leaks.
//!
//!     cargo run --release -p spandrel --features simulator --example transactions

use spandrel::heap::collections::{
    HashMap, MapHead, SortedSet, SortedSetHead, Str, Vector, VectorHead,
};
use spandrel::heap::simulator::{Bounds, Memory, Point};
use spandrel::heap::{Checked, Enumeration, Error, Heap, Medium, RootType, Trace};
use std::fmt;

/// What became of a transfer.
#[derive(Clone, Copy, PartialEq, Debug, Enumeration)]
#[repr(u8)]
enum Outcome {
    Done = 1,
    Corrected = 2,
}

/// A transfer, as it is recorded.
#[derive(Clone, Copy, Trace)]
#[repr(C)]
struct Transfer {
    from: Name,
    to: Name,
    amount: i64,
    outcome: Checked<Outcome>,
}

type Name = Str<16>;
type Accounts<'h, M> = HashMap<'h, Name, i64, &'h Heap<M>>;

const TYPES: &[RootType<'_>] = &[
    RootType::of::<MapHead<Name, i64>>("accounts"),
    RootType::of::<VectorHead<Transfer>>("transfers"),
    RootType::of::<SortedSetHead<(i64, Name)>>("by balance"),
];
const NAMES: [&str; 4] = ["Ada", "Alan", "Grace", "Kurt"];
const ALL: i64 = 400;

/// Why a transfer was not made: the program's own reasons beside the heap's.
#[derive(Debug)]
enum Refused {
    Heap(Error),
    TooLittle(i64),
}

impl From<Error> for Refused {
    fn from(why: Error) -> Self {
        Self::Heap(why)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap(why) => why.fmt(f),
            Self::TooLittle(has) => write!(f, "there are only {has}"),
        }
    }
}

impl std::error::Error for Refused {}

struct Bank<'h, M: Medium> {
    heap: &'h Heap<M>,
    accounts: Accounts<'h, M>,
    transfers: Vector<'h, Transfer, &'h Heap<M>>,
    by_balance: SortedSet<'h, (i64, Name), &'h Heap<M>>,
}

impl<'h, M: Medium> Bank<'h, M> {
    fn open(heap: &'h Heap<M>) -> Result<Self, Error> {
        Ok(Self {
            heap,
            accounts: HashMap::<Name, i64>::open(heap, "accounts")?,
            transfers: Vector::<Transfer>::open(heap, "transfers")?,
            by_balance: SortedSet::<(i64, Name)>::open(heap, "by balance")?,
        })
    }

    fn change(&mut self, name: Name, amount: i64) -> Result<(), Refused> {
        let before = self.accounts.get(&name).unwrap_or(0);
        self.by_balance.remove(&(before, name))?;
        self.by_balance.insert((before + amount, name))?;
        self.accounts.insert(name, before + amount)?;
        // What was done before this is undone.
        if before + amount < 0 { Err(Refused::TooLittle(before)) } else { Ok(()) }
    }

    /// All of a transfer, or nothing of it.
    fn transfer(&mut self, from: Name, to: Name, amount: i64) -> Result<(), Refused> {
        let heap = self.heap;
        heap.try_transaction(|| {
            self.change(to, amount)?;
            self.change(from, -amount)?;
            let outcome = Outcome::Done.into();
            Ok(self.transfers.push(Transfer { from, to, amount, outcome })?)
        })
    }

    /// Checks that the three collections agree.
    fn check(&self) -> Result<(), String> {
        let sum: i64 = self.accounts.values().sum();
        let mut expected = NAMES.map(|_| ALL / NAMES.len() as i64);
        for transfer in self.transfers.iter() {
            for (name, amount) in
                [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)]
            {
                let place = NAMES.iter().position(|other| name == **other).ok_or("no name")?;
                expected[place] += amount;
            }
            if transfer.outcome.get() != Some(Outcome::Done) {
                return Err("an outcome that is none".into());
            }
        }
        let balance = |name| self.accounts.get(&Name::cut(name)).unwrap_or(0);
        let mut sorted: Vec<_> =
            self.accounts.iter().map(|(name, balance)| (balance, name)).collect();
        sorted.sort();
        if !self.by_balance.iter().eq(sorted) {
            return Err("the order is not that of the balances".into());
        }
        match (sum, NAMES.map(balance) == expected) {
            (ALL, true) => Ok(()),
            _ => Err(format!("{sum} in the accounts, {expected:?} recorded")),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Memory::new(2 << 20);
    let heap = Heap::create(&memory, [1, 2], 0, 0)?;
    let mut bank = Bank::open(&heap)?;
    heap.try_transaction(|| {
        NAMES.iter().try_for_each(|name| bank.change(Name::cut(name), ALL / NAMES.len() as i64))
    })?;
    memory.note(0);
    let mut refused = 0;
    for round in 1..=10u64 {
        let (from, to) = (NAMES[round as usize % 4], NAMES[(round as usize * 3 + 1) % 4]);
        match bank.transfer(Name::cut(from), Name::cut(to), (round * round * 3) as i64) {
            Err(Refused::TooLittle(_)) => refused += 1,
            done => done?,
        }
        memory.note(round);
    }
    drop(bank);
    heap.close()?;

    let check = |image: &[u8], point: &Point<'_>| -> Result<(), String> {
        if point.notes.is_empty() {
            return Ok(());
        }
        let after = Memory::from_image(image);
        let (heap, _) = Heap::open(&after, 0, Some(TYPES)).map_err(|why| why.to_string())?;
        Bank::open(&heap).map_err(|why| why.to_string())?.check()?;
        heap.close().map_err(|why| why.to_string())?;
        let survey = spandrel::heap::check(&after, TYPES, &mut |_| ());
        let survey = survey.map_err(|why| why.to_string())?;
        match (survey.damaged, survey.lost) {
            (0, 0) => Ok(()),
            (damaged, lost) => Err(format!("{damaged} damages, {lost} objects lost")),
        }
    };
    let seen = memory.journal().images(&Bounds { lines: 6, most: 16, drawn: 4, seed: 1 }, check);
    let seen = seen.map_err(|found| found.to_string())?;
    println!(
        "{} moments, {} images: {ALL} in the accounts in each, {refused} transfers refused and nothing of them left, and nothing leaks",
        seen.points, seen.images
    );
    Ok(())
}
