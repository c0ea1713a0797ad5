//! Each form of an instruction that writes through a vector of addresses, natively and translated: each byte that changes is noted, and none besides.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register as R};
use std::prelude::v1::*;

use super::corpus::{Random, millions};
use super::executed::Machine;
use super::scatter::Layout;

/// Codes by the bytes of a vector, 16, 32 and 64; the bytes of an index, and of an element.
const CODES: [([Code; 3], usize, usize); 8] = [
    (
        [
            Code::EVEX_Vpscatterdd_vm32x_k1_xmm,
            Code::EVEX_Vpscatterdd_vm32y_k1_ymm,
            Code::EVEX_Vpscatterdd_vm32z_k1_zmm,
        ],
        4,
        4,
    ),
    (
        [
            Code::EVEX_Vpscatterdq_vm32x_k1_xmm,
            Code::EVEX_Vpscatterdq_vm32x_k1_ymm,
            Code::EVEX_Vpscatterdq_vm32y_k1_zmm,
        ],
        4,
        8,
    ),
    (
        [
            Code::EVEX_Vpscatterqd_vm64x_k1_xmm,
            Code::EVEX_Vpscatterqd_vm64y_k1_xmm,
            Code::EVEX_Vpscatterqd_vm64z_k1_ymm,
        ],
        8,
        4,
    ),
    (
        [
            Code::EVEX_Vpscatterqq_vm64x_k1_xmm,
            Code::EVEX_Vpscatterqq_vm64y_k1_ymm,
            Code::EVEX_Vpscatterqq_vm64z_k1_zmm,
        ],
        8,
        8,
    ),
    (
        [
            Code::EVEX_Vscatterdps_vm32x_k1_xmm,
            Code::EVEX_Vscatterdps_vm32y_k1_ymm,
            Code::EVEX_Vscatterdps_vm32z_k1_zmm,
        ],
        4,
        4,
    ),
    (
        [
            Code::EVEX_Vscatterdpd_vm32x_k1_xmm,
            Code::EVEX_Vscatterdpd_vm32x_k1_ymm,
            Code::EVEX_Vscatterdpd_vm32y_k1_zmm,
        ],
        4,
        8,
    ),
    (
        [
            Code::EVEX_Vscatterqps_vm64x_k1_xmm,
            Code::EVEX_Vscatterqps_vm64y_k1_xmm,
            Code::EVEX_Vscatterqps_vm64z_k1_ymm,
        ],
        8,
        4,
    ),
    (
        [
            Code::EVEX_Vscatterqpd_vm64x_k1_xmm,
            Code::EVEX_Vscatterqpd_vm64y_k1_ymm,
            Code::EVEX_Vscatterqpd_vm64z_k1_zmm,
        ],
        8,
        8,
    ),
];

fn register(bytes: usize, number: usize) -> R {
    let first = match bytes {
        64 => R::ZMM0,
        32 => R::YMM0,
        _ => R::XMM0,
    };
    first + number as u32
}

/// Puts the eight bytes of that number of a vector to where the processor loads them from.
fn put(vectors: &mut [u8], vector: usize, number: usize, value: u64) {
    let layout = Layout::default();
    let at = match (vector, number) {
        (16.., _) => layout.part(3).1 + (vector - 16) * 64 + number * 8,
        (_, 0..2) => 160 + vector * 16 + number * 8,
        (_, 2..4) => layout.part(0).1 + vector * 16 + (number - 2) * 8,
        _ => layout.part(2).1 + vector * 32 + (number - 4) * 8,
    };
    vectors[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn each_element_that_is_written_is_noted() {
    if !std::is_x86_feature_detected!("avx512vl") {
        return;
    }
    let (mut machine, mut random) = (Machine::default(), Random(0x5_eed5));
    let turns = (millions(0.00004) * 1e6) as usize;
    let (mut elements, mut empty) = (0, 0);
    for (codes, index_bytes, element_bytes) in CODES {
        for (which, code) in codes.into_iter().enumerate() {
            let count = (16 << which) / index_bytes.max(element_bytes);
            for _ in 0..turns {
                let scale = random.of(&[1, 2, 4, 8]);
                let (data, index) = (random.below(32), random.below(32));
                let (data, index) =
                    if data == index { (data, (index + 7) % 32) } else { (data, index) };
                let indices: Vec<i64> =
                    (0..count).map(|_| random.below(201) as i64 - 100).collect();
                for (number, value) in indices.iter().enumerate() {
                    let vectors = &mut machine.first.vectors;
                    if index_bytes == 8 {
                        put(vectors, index, number, *value as u64);
                    } else if number % 2 == 0 {
                        let next = indices.get(number + 1).copied().unwrap_or(0);
                        let both = u64::from(*value as u32) | (next as u64) << 32;
                        put(vectors, index, number / 2, both);
                    }
                }
                let (mask_number, mask) = (1 + random.below(7), random.next());
                let mask = if random.below(8) == 0 { 0 } else { mask };
                let at = Layout::default().part(1).1 + mask_number * 8;
                machine.first.vectors[at..at + 8].copy_from_slice(&mask.to_le_bytes());
                let base = random.of(&[R::RBX, R::RSI, R::RBX, R::EBX]);
                let displacement = random.below(64) as i64 - 32;
                let wide = register(count * index_bytes, index);
                let place = MemoryOperand::new(base, wide, scale, displacement, 1, false, R::None);
                let vector = register(count * element_bytes, data);
                let mut instruction = Instruction::with2(code, place, vector).unwrap();
                instruction.set_op_mask(R::K0 + mask_number as u32);
                let mut encoder = Encoder::new(64);
                encoder.encode(&instruction, 0x1000).unwrap();
                assert!(machine.compare(&encoder.take_buffer()), "{code:?} faults");
                let offset = if base == R::RSI { 512 } else { 0 };
                let from = (machine.middle() + offset) as i64 + displacement;
                let written = indices.iter().enumerate().filter(|(n, _)| mask >> n & 1 != 0);
                let mut expected: Vec<(usize, usize)> = written
                    .map(|(_, index)| ((from + index * i64::from(scale)) as usize, element_bytes))
                    .collect();
                let mut noted = machine.noted();
                noted.retain(|(_, bytes)| *bytes > 0);
                noted.sort_unstable();
                expected.sort_unstable();
                assert_eq!(noted, expected, "{code:?}");
                elements += expected.len();
                empty += usize::from(expected.is_empty());
            }
        }
    }
    assert!(elements > turns * 24 && empty > turns, "{elements} {empty}");
}
