//! Which code was translated, and which exits lead where.

use core::slice;

use crate::Refused;
use crate::memory::Memory;

/// Places of the table of blocks, a power of two: half of them are used at most.
const PLACES: usize = 1 << 18;
/// Places of a page of the table. Code of about as many bytes has its places there: what runs for the first time touches few pages that no memory was given to yet.
const NEAR: usize = 256;
/// Bytes of code for each of them.
const STEP_SHIFT: u32 = 2;
/// Blocks at most.
pub const BLOCKS: usize = PLACES / 2;
/// Exits at most.
const EXITS: usize = 1 << 18;
const EXIT_WORDS: usize = 3;

/// Words of memory as they are used.
struct Words {
    memory: Memory,
}

impl Words {
    fn new(words: usize) -> Result<Self, Refused> {
        Ok(Self { memory: Memory::new(words, words)? })
    }

    fn all(&mut self) -> &mut [u64] {
        // SAFETY: open words of this value's own memory.
        unsafe { slice::from_raw_parts_mut(self.memory.at().as_ptr(), self.memory.words()) }
    }
}

/// An exit of a block, to code that was not translated when the block was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// The program's code.
    pub target: u64,
    /// Where the code lies that calls out.
    pub stub: u64,
    /// The distance of the branch that leads there; 0: the block runs into it.
    pub site: u64,
}

/// See the head of this file.
pub struct Tables {
    blocks: Words,
    count: usize,
    exits: Words,
    exit_count: usize,
}

impl Tables {
    /// Empty ones.
    ///
    /// # Errors
    /// [`Refused::Memory`].
    pub fn new() -> Result<Self, Refused> {
        let (blocks, exits) = (Words::new(PLACES * 2)?, Words::new(EXITS * EXIT_WORDS)?);
        Ok(Self { blocks, count: 0, exits, exit_count: 0 })
    }

    fn place_of(&mut self, from: u64) -> usize {
        // Multiplicative hashing (Knuth, The Art of Computer Programming, 6.4) of the page: the high bits of a product with 2^64 / phi.
        let step = from >> STEP_SHIFT;
        let page = (step / NEAR as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let mut place = (page as usize * NEAR + step as usize % NEAR) % PLACES;
        loop {
            match self.blocks.all().get(place * 2) {
                Some(word) if *word != 0 && *word != from => place = (place + 1) % PLACES,
                _ => return place,
            }
        }
    }

    /// The translation of the block at an address.
    pub fn block(&mut self, from: u64) -> Option<u64> {
        let place = self.place_of(from);
        let pair = self.blocks.all().get(place * 2..place * 2 + 2)?;
        (pair.first() == Some(&from)).then(|| pair.get(1).copied()).flatten()
    }

    /// Notes a translation. False: there is no room.
    pub fn set_block(&mut self, from: u64, to: u64) -> bool {
        if self.count >= BLOCKS {
            return false;
        }
        let place = self.place_of(from);
        let Some(pair) = self.blocks.all().get_mut(place * 2..place * 2 + 2) else { return false };
        let is_new = pair.first() != Some(&from);
        pair.copy_from_slice(&[from, to]);
        self.count += usize::from(is_new);
        true
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.blocks.all().fill(0);
        (self.count, self.exit_count) = (0, 0);
    }

    /// Blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number that the next exit gets; `None`: there is no room.
    pub fn next_exit(&self) -> Option<u32> {
        (self.exit_count < EXITS).then_some(self.exit_count as u32)
    }

    /// Adds an exit.
    pub fn add_exit(&mut self, exit: Exit) {
        let at = self.exit_count * EXIT_WORDS;
        if let Some(words) = self.exits.all().get_mut(at..at + EXIT_WORDS) {
            words.copy_from_slice(&[exit.target, exit.stub, exit.site]);
            self.exit_count += 1;
        }
    }

    /// The exit of that number.
    pub fn exit(&mut self, number: u32) -> Option<Exit> {
        let at = number as usize * EXIT_WORDS;
        match self.exits.all().get(at..at + EXIT_WORDS) {
            Some(&[target, stub, site]) if (number as usize) < self.exit_count => {
                Some(Exit { target, stub, site })
            }
            _ => None,
        }
    }
}
