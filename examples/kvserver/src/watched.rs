//! The keys that clients watch, and the number of each one's last change.
//!
//! A client enters a key before it reads it. A command that changes the key numbers the change while it runs, so that a read that follows the
//! entry either sees the change or comes before its number. A command that is undone, or runs again, takes its numbers back first ([`Touches`]): it has changed nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the head of this file.
#[derive(Default)]
pub struct Watched {
    /// Entries of the map: commands look at the map only if there are some.
    len: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, Watch>>,
    last: AtomicU64,
}

struct Watch {
    clients: usize,
    /// Number of the last change.
    changed: u64,
}

/// The numbers that a command has given, for the case that it is undone.
#[derive(Default)]
pub struct Touches(Mutex<Vec<Touch>>);

struct Touch {
    key: Vec<u8>,
    before: u64,
    after: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Enters a key; returns the number of its last change.
    pub fn enter(&self, key: &[u8]) -> u64 {
        let mut keys = lock(&self.keys);
        let fresh = Watch { clients: 0, changed: self.last.fetch_add(1, Relaxed) };
        let watch = keys.entry(key.to_vec()).or_insert(fresh);
        watch.clients += 1;
        let changed = watch.changed;
        self.len.store(keys.len(), Relaxed);
        changed
    }

    /// Takes back an entry.
    pub fn leave(&self, key: &[u8]) {
        let mut keys = lock(&self.keys);
        if let Some(watch) = keys.get_mut(key) {
            watch.clients -= 1;
            if watch.clients == 0 {
                keys.remove(key);
            }
        }
        self.len.store(keys.len(), Relaxed);
    }

    /// Numbers a change of a key.
    pub fn touch(&self, key: &[u8], touches: Option<&Touches>) {
        if self.len.load(Relaxed) == 0 {
            return;
        }
        if let Some(watch) = lock(&self.keys).get_mut(key) {
            self.number(key, watch, touches);
        }
    }

    /// Numbers a change of all keys that are there.
    pub fn touch_all(&self, touches: Option<&Touches>, is_there: impl Fn(&[u8]) -> bool) {
        for (key, watch) in lock(&self.keys).iter_mut().filter(|(key, _)| is_there(key)) {
            self.number(key, watch, touches);
        }
    }

    fn number(&self, key: &[u8], watch: &mut Watch, touches: Option<&Touches>) {
        let after = self.last.fetch_add(1, Relaxed);
        let before = std::mem::replace(&mut watch.changed, after);
        if let Some(Touches(all)) = touches {
            lock(all).push(Touch { key: key.to_vec(), before, after });
        }
    }

    /// Takes back the numbers of a command that was undone. What another command has numbered since stays changed.
    pub fn take_back(&self, Touches(all): &Touches) {
        let mut all = lock(all);
        if all.is_empty() {
            return;
        }
        let mut keys = lock(&self.keys);
        for Touch { key, before, after } in all.drain(..).rev() {
            match keys.get_mut(&key) {
                Some(watch) if watch.changed == after => watch.changed = before,
                _ => {}
            }
        }
    }

    /// The number of the last change of a key that is entered.
    pub fn changed(&self, key: &[u8]) -> Option<u64> {
        lock(&self.keys).get(key).map(|watch| watch.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_that_watch() {
        let watched = Watched::default();
        watched.touch(b"a", None);
        assert_eq!(watched.changed(b"a"), None);
        let first = watched.enter(b"a");
        assert_eq!(watched.changed(b"a"), Some(first));
        watched.touch(b"b", None);
        assert_eq!(watched.changed(b"a"), Some(first));
        watched.touch(b"a", None);
        let second = watched.changed(b"a");
        assert_ne!(second, Some(first));
        assert_eq!(Some(watched.enter(b"a")), second);
        watched.touch_all(None, |key| key != b"a");
        assert_eq!(watched.changed(b"a"), second);
        watched.touch_all(None, |key| key == b"a");
        assert_ne!(watched.changed(b"a"), second);
        watched.leave(b"a");
        assert!(watched.changed(b"a").is_some());
        watched.leave(b"a");
        assert_eq!((watched.changed(b"a"), watched.len.load(Relaxed)), (None, 0));
    }

    #[test]
    fn a_command_that_is_undone_has_changed_nothing() {
        let (watched, touches) = (Watched::default(), Touches::default());
        let first = watched.enter(b"a");
        watched.touch(b"a", Some(&touches));
        watched.touch_all(Some(&touches), |_| true);
        assert_ne!(watched.changed(b"a"), Some(first));
        watched.take_back(&touches);
        assert_eq!(watched.changed(b"a"), Some(first));
        // But what another has changed.
        watched.touch(b"a", Some(&touches));
        watched.touch(b"a", None);
        watched.take_back(&touches);
        assert_ne!(watched.changed(b"a"), Some(first));
    }
}
