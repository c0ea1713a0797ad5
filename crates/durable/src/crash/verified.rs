//! What a comparison of both files finds: nothing in any image that a failure leaves, and each byte that is otherwise.

use std::prelude::v1::*;

use spandrel_pmem::Medium as _;
use spandrel_pmem::disk::{Disk as _, LogOf, Which};
use spandrel_pmem::simulator::Unit;
use spandrel_pmem::tie::{Found, Ties};
use spandrel_redolog::Ring;

use super::files::Files;
use super::{BASE_BYTES, IDENTITY, Life, MOST_BYTES, TIE};
use crate::control::Control;
use crate::verify::{Compared, Memory, Unnoted, compare};

/// What the comparison finds, and the state with all batches.
fn compared(files: &Files) -> Result<(Compared, Vec<u8>), String> {
    let failed = |why| format!("verification: {why:?}");
    let Found::Ties(ties) = Ties::read(files, TIE, IDENTITY).map_err(failed)? else {
        return Err("no tie".into());
    };
    let tie = ties.newest();
    let bytes = files.bytes(Which::Image).map_err(failed)? as usize;
    let memory = Memory::new(None, bytes, MOST_BYTES, Unnoted).map_err(failed)?;
    let mut image = vec![0; bytes];
    files.read(Which::Image, 0, &mut image).map_err(failed)?;
    // SAFETY: the memory has that many bytes, and one thread.
    unsafe { memory.store(0, &image) };
    let mut found = Compared::default();
    if files.has_log() {
        let key = (tie.point, tie.is_complete);
        let ring = Ring::open(&LogOf(files), IDENTITY, key, &mut [0; 4096]).map_err(failed)?;
        found = compare(files, &ring, tie.point, &memory, &mut |_, _| ()).map_err(failed)?;
    }
    // SAFETY: as above.
    let state = unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), memory.bytes()) };
    let mut state = state.to_vec();
    state[TIE as usize..BASE_BYTES].fill(0);
    Ok((found, state))
}

/// The state that a sound image has with all batches.
pub fn sound(files: &Files) -> Result<Vec<u8>, String> {
    match compared(files)? {
        (Compared { differing: 0, .. }, state) => Ok(state),
        (found, _) => Err(format!("a sound state is said to be damaged: {found:?}")),
    }
}

/// Of the bytes that batches have stored which the state has, each is found; one that a later batch stores, which the state lacks, may be anything.
#[test]
fn each_byte_that_is_not_what_the_last_batch_has_stored_is_found() {
    let (disk, control) = (Files::fresh(Unit::Sector), Control::default());
    let mut life = Life::open(&disk, &control, 1000, 0).unwrap();
    let mut last = [0; MOST_BYTES];
    for round in 1..=6 {
        let runs = life.change(round);
        runs.iter().for_each(|(at, len)| last[*at..at + len].fill(round));
        life.commit(&runs, round.into());
        life.follow(usize::from(round < 5), round == 4);
    }
    let (image, state) = (disk.journal().last(), life.state.clone());
    drop(life);
    let (found, all) = compared(&disk).unwrap();
    assert_eq!((found.batches, found.differing, &all), (4, 0, &state));
    for at in (0..TIE as usize).chain(BASE_BYTES..state.len()) {
        let mut image = image.clone();
        image[at] ^= 0x40;
        let (found, _) = compared(&Files::left(Unit::Sector, &image)).unwrap();
        let is_stored = (1..=4).contains(&last[at]);
        let expected = is_stored.then_some(at as u64);
        assert_eq!((found.first, found.differing), (expected, u64::from(is_stored)), "{at}");
    }
}
