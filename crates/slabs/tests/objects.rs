//! Objects keep what is written to them, never overlap, and are aligned.

use proptest::prelude::*;
use spandrel_slabs as slabs;

/// A live object: its size, and the byte that fills it.
struct Live {
    at: *mut u8,
    size: usize,
    mark: u8,
}

impl Live {
    fn fill(&self) {
        // SAFETY: a live object of that size.
        unsafe { self.at.write_bytes(self.mark, self.size) }
    }

    fn check(&self, bytes: usize) {
        // SAFETY: as above.
        let all = unsafe { std::slice::from_raw_parts(self.at, bytes) };
        assert!(all.iter().all(|byte| *byte == self.mark), "{:p} of {} bytes", self.at, self.size);
    }
}

#[derive(Clone, Debug)]
enum Step {
    New { size: usize, align_bits: u32, zeroed: bool },
    Free { which: usize },
    Resize { which: usize, size: usize },
    Trim,
}

fn size() -> impl Strategy<Value = usize> {
    (0u32..23, 0.0..1.0f64)
        .prop_map(|(bits, part)| ((1usize << bits) as f64 * (1.0 + part)) as usize - 1)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (size(), 0u32..23, any::<bool>()).prop_map(|(size, align, zeroed)| Step::New {
            size,
            align_bits: if align < 16 { 4 } else { align },
            zeroed,
        }),
        4 => any::<usize>().prop_map(|which| Step::Free { which }),
        4 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Resize { which, size }),
        1 => Just(Step::Trim),
    ]
}

fn run(steps: Vec<Step>) {
    assert!(slabs::start());
    let mut live: Vec<Live> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::New { size, align_bits, zeroed } => {
                let align = 1 << align_bits;
                let at = if zeroed {
                    slabs::alloc_zeroed_aligned(align, size)
                } else {
                    slabs::alloc_aligned(align, size)
                };
                assert!(!at.is_null() && (at as usize).is_multiple_of(align));
                // SAFETY: a live object.
                assert!(unsafe { slabs::usable_size(at) } >= size);
                let object = Live { at, size, mark: number as u8 };
                if zeroed {
                    Live { at, size, mark: 0 }.check(size);
                }
                object.fill();
                live.push(object);
            }
            Step::Free { which } if !live.is_empty() => {
                let object = live.swap_remove(which % live.len());
                object.check(object.size);
                // SAFETY: taken off the list of live objects.
                unsafe { slabs::free(object.at) };
            }
            Step::Resize { which, size } if !live.is_empty() => {
                let index = which % live.len();
                let object = &mut live[index];
                let size = size.max(1);
                // SAFETY: a live object; the old address is forgotten.
                object.at = unsafe { slabs::realloc(object.at, size) };
                assert!(!object.at.is_null());
                object.check(object.size.min(size));
                object.size = size;
                object.fill();
            }
            Step::Trim => {
                slabs::trim();
            }
            _ => {}
        }
    }
    for object in live {
        object.check(object.size);
        // SAFETY: live until here.
        unsafe { slabs::free(object.at) };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn objects_keep_their_contents(steps in prop::collection::vec(step(), 1..200)) {
        run(steps);
    }
}

#[test]
fn objects_are_freed_by_other_threads() {
    assert!(slabs::start());
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<(usize, usize)>>();
    let maker = std::thread::spawn(move || {
        for round in 0..200usize {
            let objects = (0..500)
                .map(|n| {
                    let size = 1 + (n * 37 + round) % 3000;
                    let at = slabs::alloc(size);
                    // SAFETY: a live object of that size.
                    unsafe { at.write_bytes(n as u8, size) };
                    (at as usize, size)
                })
                .collect();
            sender.send(objects).unwrap();
        }
    });
    for objects in receiver {
        for (n, (at, size)) in objects.into_iter().enumerate() {
            Live { at: at as *mut u8, size, mark: n as u8 }.check(size);
            // SAFETY: live until here.
            unsafe { slabs::free(at as *mut u8) };
        }
    }
    maker.join().unwrap();
}
