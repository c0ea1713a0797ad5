//! The simulation's own tables lie on huge pages where the kernel gives them: they are large, and
//! looked at here and there.

/// Below this huge pages make no difference.
const LEAST_BYTES: usize = 4 << 20;

/// An empty vector with room for `capacity` values, on huge pages.
pub(crate) fn vec<T>(capacity: usize) -> Vec<T> {
    let vec: Vec<T> = Vec::with_capacity(capacity);
    advise(vec.as_ptr().cast(), capacity * size_of::<T>());
    vec
}

/// Asks for huge pages for memory that belongs to the caller.
pub(crate) fn advise(first: *const u8, bytes: usize) {
    let page = spandrel_pages::PAGE_BYTES;
    let skip = first.align_offset(page);
    if bytes < LEAST_BYTES {
        return;
    }
    // SAFETY: whole pages inside of memory that belongs to the caller; what is in them stays.
    // Where the kernel refuses, small pages serve.
    unsafe {
        let first = first.add(skip).cast_mut().cast();
        libc::madvise(first, (bytes - skip) / page * page, libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn vectors_have_room() {
        let mut large: Vec<u64> = super::vec(1 << 20);
        assert!(large.is_empty() && large.capacity() >= 1 << 20);
        large.resize(1 << 20, 7);
        assert_eq!(large[(1 << 20) - 1], 7);
        assert_eq!(super::vec::<u8>(0).capacity(), 0);
    }
}
