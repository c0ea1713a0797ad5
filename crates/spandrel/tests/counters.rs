//! What is counted since the beginning of the process never falls, whoever looks and whatever goes on.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spandrel_pages::Figure;

#[global_allocator]
static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();

/// Objects of all sizes that come, change hands at the end of a thread, and go.
fn churn(seed: u64) -> Vec<Vec<u8>> {
    let mut random = seed;
    let mut live = Vec::new();
    for _ in 0..4000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = 1 << ((random >> 40) % 18);
        live.push(black_box(vec![random as u8; size + (random >> 33) as usize % size]));
        if live.len() > 400 {
            live.swap_remove((random >> 20) as usize % 400);
        }
    }
    live
}

#[test]
fn counters_never_fall() {
    spandrel::set_mode("native").expect("a mode");
    let counters = || Figure::ALL.iter().copied().filter(|figure| figure.never_falls());
    let ended = AtomicBool::new(false);
    let mut looks = 0;
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| {
            for round in 0..20 {
                let left = std::thread::spawn(move || churn(round)).join().expect("no panic");
                churn(!round);
                drop(left);
                spandrel::trim();
            }
            ended.store(true, Relaxed);
        });
        let mut last = None;
        while !ended.load(Relaxed) && !worker.is_finished() {
            let Some(now) = spandrel::stats().native else { continue };
            if let Some(last) = last.replace(now) {
                for figure in counters() {
                    let (before, after) = (last[figure as usize], now[figure as usize]);
                    assert!(after >= before, "{}: {before}, then {after}", figure.name());
                }
            }
            looks += 1;
        }
    });
    assert!(looks > 100, "{looks}");
    let figures = spandrel::stats().native.expect("a native heap");
    let moved = counters().filter(|figure| figures[*figure as usize] > 0).count();
    assert!(moved > 5, "{moved} counters have counted anything");
}
