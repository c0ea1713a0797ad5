//! Commands that refuse themselves, among others of the same batch.

use super::*;

/// What a refused command has stored no other command sees: here each would be refused for it.
#[test]
fn no_command_is_refused_for_what_another_one_had_not_done() {
    const THREADS: u64 = 6;
    const TURNS: u64 = 60;
    for (_place, path) in places() {
        let db = open(&path).unwrap();
        db.write(|s| s.of.insert(1, 100)).unwrap().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let db = &db;
                scope.spawn(move || {
                    let mut client = db.client();
                    for _ in 0..TURNS {
                        let done = match thread % 3 {
                            0 => client.try_write(|s| {
                                s.of.insert(1, 0).unwrap();
                                Err::<(), _>("no such target")
                            }),
                            1 => client.try_write(|s| match s.of.get(&1) {
                                Some(100) => Ok(()),
                                _ => Err("not enough"),
                            }),
                            _ => client.try_write(|s| {
                                s.of.insert(thread, 1).map(drop).map_err(|_| "no room")
                            }),
                        };
                        let expected = if thread % 3 == 0 { Err("no such target") } else { Ok(()) };
                        assert_eq!(done, Ok(expected));
                    }
                });
            }
        });
        assert_eq!(db.read(|s| s.of.get(&1)), Some(100));
        db.close().unwrap();
    }
}

/// The same where a command of the batch is longer than the log may become, so that all run again, one by one.
#[test]
fn no_command_is_refused_for_what_was_too_long() {
    const TURNS: u64 = 15;
    let (_place, path) = places().remove(0);
    let db = open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut client = db.client();
                for _ in 0..TURNS {
                    if thread % 2 == 0 {
                        let done = client.try_write(|s| {
                            s.of.insert(7, 7).unwrap();
                            (0..40_000u64)
                                .try_for_each(|n| s.of.insert(1000 + n, n).map(drop))
                                .unwrap();
                            Err::<(), _>("long")
                        });
                        assert!(!matches!(done, Ok(Ok(()))), "{done:?}");
                    } else {
                        let done = client.try_write(|s| match s.of.get(&7) {
                            None => Ok(()),
                            Some(_) => Err("exists"),
                        });
                        assert_eq!(done, Ok(Ok(())));
                    }
                }
            });
        }
    });
}
