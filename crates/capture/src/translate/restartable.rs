//! Restartable sequences (rseq(2)). The kernel has a sequence begin anew that was interrupted, and knows one by the addresses of its code. A translation lies at others: it would never begin
//! anew, and two threads might change what belongs to one processor. So code that is about to enter a sequence is refused. It is known by the sequence's descriptor, which it has the
//! address of.

use super::peek;

/// What the kernel wants to find before the code that a sequence begins anew at: the word that glibc registers, and so all others have.
const SIGNATURE: u32 = 0x5305_3053;
/// Descriptors lie at multiples of it.
const ALIGNMENT: u64 = 32;
/// A sequence is shorter.
const LONGEST_SEQUENCE: u64 = 1 << 16;

/// The kernel's `struct rseq_cs`.
#[derive(Default)]
#[repr(C)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    bytes: u64,
    abort: u64,
}

/// Whether the descriptor of a sequence lies there. Complexity: a system call or two, for one address of 32.
pub fn is_descriptor(at: u64) -> bool {
    if at == 0 || !at.is_multiple_of(ALIGNMENT) {
        return false;
    }
    let mut words = [0; size_of::<Descriptor>()];
    if peek(at, &mut words) < words.len() {
        return false;
    }
    // SAFETY: numbers, of any bytes.
    let found = unsafe { words.as_ptr().cast::<Descriptor>().read_unaligned() };
    let is_short = (1..LONGEST_SEQUENCE).contains(&found.bytes);
    if found.version != 0 || found.start == 0 || !is_short {
        return false;
    }
    let mut before = [0; size_of::<u32>()];
    let place = found.abort.wrapping_sub(before.len() as u64);
    peek(place, &mut before) == before.len() && u32::from_ne_bytes(before) == SIGNATURE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies before the code that a sequence begins anew at, and that code.
    static ABORT: [u32; 2] = [SIGNATURE, 0];

    #[repr(C, align(32))]
    struct Aligned(Descriptor);

    fn descriptor() -> Aligned {
        let abort = &raw const ABORT[1] as u64;
        Aligned(Descriptor { version: 0, flags: 0, start: 4096, bytes: 20, abort })
    }

    #[test]
    fn a_descriptor_is_known_by_its_shape_and_signature() {
        let tells = |change: fn(&mut Descriptor)| {
            let mut there = descriptor();
            change(&mut there.0);
            is_descriptor(&raw const there as u64)
        };
        assert!(tells(|_| ()));
        assert!(!tells(|there| there.version = 1));
        assert!(!tells(|there| there.start = 0));
        assert!(!tells(|there| there.bytes = 0));
        assert!(!tells(|there| there.bytes = LONGEST_SEQUENCE));
        assert!(!tells(|there| there.abort += 4));
        assert!(!tells(|there| there.abort = 0));
        let there = descriptor();
        assert!(!is_descriptor(&raw const there as u64 + 8));
        assert!(!is_descriptor(0) && !is_descriptor(u64::MAX - 31));
    }
}
