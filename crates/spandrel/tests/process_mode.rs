//! The mode of the whole process changes while threads allocate. In a program of its
//! own: every thread of it is concerned.

#[global_allocator]
static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();

#[test]
fn the_process_mode_can_be_changed_while_threads_allocate() {
    let modes = ["sys", "mmap", "auto", "switch", "template=0-1000:mmap,1000-:sys"];
    std::thread::scope(|threads| {
        for seed in 0..3u64 {
            threads.spawn(move || {
                let mut live: Vec<Vec<u64>> = Vec::new();
                for i in 0..3000u64 {
                    let len = ((i * 7919 + seed * 104_729) % 3000) as usize;
                    live.push((0..len as u64).map(|n| n ^ i).collect());
                    if live.len() > 50 {
                        let vec = live.swap_remove((i % 50) as usize);
                        let first = vec.first().copied().unwrap_or(0);
                        assert!(vec.iter().enumerate().all(|(n, v)| *v == n as u64 ^ first));
                    }
                }
            });
        }
        threads.spawn(move || {
            for i in 0..300 {
                spandrel::set_mode(modes[i % modes.len()]).unwrap();
                std::thread::yield_now();
            }
            spandrel::set_mode("auto").unwrap();
        });
    });
}
