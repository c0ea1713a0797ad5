//! Recordings: whatever the bytes are, reading ends in events or in an error within the file; checksums
//! are made to fit, so that what is behind them is read too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_recorder::layout::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, BLOCK_MAGIC, CHECKSUM, HEADER_BYTES, Kinds, STATE_AT, header,
};
use spandrel_trace::{Objects, Spans, Trace, requests, spans};

fuzz_target!(|input: (bool, Vec<(u8, Vec<u8>)>, Vec<u8>)| {
    let (repaired, blocks, raw) = input;
    let bytes = if repaired { recording(&blocks) } else { raw };
    let len = bytes.len() as u64;
    let trace = match Trace::new(bytes) {
        Ok(trace) => trace,
        Err(error) => return assert!(error.offset <= len),
    };
    let mut before = 0;
    for event in trace.events() {
        match event {
            Ok(happened) => {
                assert!(happened.ns >= before);
                before = happened.ns;
            }
            Err(error) => assert!(error.offset <= len),
        }
    }
    let _ = (Objects::new(&trace).count(), Spans::new(&trace).count());
    let _ = (requests(&trace), spans(&trace));
});

/// A recording whose blocks have these lanes and events, in order, with checksums that fit.
fn recording(blocks: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = header(1, Kinds { requests: true, spans: true }, 0, b"fuzz").to_vec();
    assert_eq!(bytes.len(), HEADER_BYTES);
    let mut numbers = [0u64; 4];
    for (lane, events) in blocks.iter().take(8) {
        let lane = usize::from(lane % 4);
        let mut block = vec![0; BLOCK_BYTES];
        block[..4].copy_from_slice(&BLOCK_MAGIC);
        block[4..8].copy_from_slice(&(lane as u32).to_le_bytes());
        block[8..16].copy_from_slice(&numbers[lane].to_le_bytes());
        numbers[lane] += 1;
        let len = events.len().min(BLOCK_BYTES - BLOCK_HEADER_BYTES);
        block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + len].copy_from_slice(&events[..len]);
        let mut digest = CHECKSUM.digest();
        digest.update(&block[..STATE_AT]);
        digest.update(&events[..len]);
        block[STATE_AT..STATE_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        block[STATE_AT + 4..STATE_AT + 8].copy_from_slice(&digest.finalize().to_le_bytes());
        bytes.extend(block);
    }
    bytes
}
