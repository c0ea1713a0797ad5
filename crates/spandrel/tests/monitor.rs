//! The object monitor. Alone in its process: it sees all objects.

#[global_allocator]
static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();

#[test]
fn the_monitor_follows_objects() {
    let monitor = spandrel::monitor();
    let mut grown: Vec<u64> = Vec::with_capacity(4);
    for n in 0..200_000 {
        grown.push(n);
    }
    let record = monitor.object(grown.as_ptr()).expect("it has grown");
    // 4 to 262,144 numbers by doubling.
    assert_eq!((record.reallocations, record.size, record.live), (16, 262_144 * 8, true));
    assert_eq!(
        record.requested_bytes,
        (8..=262_144).map(|n: u64| if n.is_power_of_two() { 8 * n } else { 0 }).sum()
    );
    assert!(record.moves >= record.migrations && record.migrations >= 1, "{record:?}");
    assert!(record.nanos > 0 && record.allocator == spandrel::owner(grown.as_ptr().cast()));
    let address = grown.as_ptr();
    drop(grown);
    assert_eq!(monitor.object(address), None);
    let mut most = [spandrel::ObjectRecord::EMPTY; 8];
    let count = monitor.most_resized(&mut most);
    assert!(most[..count].iter().any(|other| other.address == address.addr() && !other.live));
    drop(monitor);
    let mut unseen: Vec<u8> = Vec::with_capacity(1);
    unseen.extend([0; 5000]);
    assert_eq!(spandrel::monitor().object(unseen.as_ptr()), None);
}
