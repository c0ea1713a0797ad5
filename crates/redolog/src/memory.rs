//! A log in memory: for tests and for fuzzing.

use std::cell::RefCell;
use std::vec;
use std::vec::Vec;

use crate::{Fault, Storage};

/// A file in memory, whose bytes a test may change.
#[derive(Clone, Debug)]
pub struct Bytes(pub RefCell<Vec<u8>>);

impl Bytes {
    /// A file of zeroes.
    pub fn new(len: usize) -> Self {
        Self(RefCell::new(vec![0; len]))
    }
}

impl Storage for Bytes {
    type Error = Fault;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let bytes = self.0.borrow();
        let from = (at as usize).min(bytes.len());
        let len = into.len().min(bytes.len() - from);
        into[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.0.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn allow(&self, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn bytes(&self) -> Result<u64, Fault> {
        Ok(self.0.borrow().len() as u64)
    }
}
