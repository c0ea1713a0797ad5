//! How recovery finds the pointers of an object: by its type.

use core::cell::Cell;
use core::fmt;

use crate::pointer::PPtr;

/// Types that may lie in a heap, and say where their pointers are.
///
/// `#[derive(Trace)]` writes this for a structure of such types; numbers, arrays, tuples and [`PPtr`] are some.
///
/// # Safety
/// Any bytes are a value of the type: a heap may hold what a damaged disk has made of it. So there is no `bool`, `char`,
/// reference or enumeration in it; [`Checked`](crate::Checked) holds the first two and the last. Whatever holds an object of the heap, [`Trace::trace`] names.
/// Pointers to one object name the same type: recovery follows the object once, as what the first pointer says. They may name different numbers of
/// values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a heap: not all bytes are a value of it, or what it leads to is elsewhere",
    note = "`bool`, `char` and enumerations with `#[derive(Enumeration)]` lie in a heap as `Checked<_>`",
    note = "an `Option<PPtr<T>>` is a `PPtr<T>`, which can be null; a `String` is a `Str<N>`",
    note = "a structure of the program's own takes `#[derive(Trace)]` and `#[repr(C)]`"
)]
pub unsafe trait Trace: Sized {
    /// A number that changes when the type's layout does: of its name, its fields' names, places and layouts.
    const LAYOUT: u64;
    /// Whether there is any pointer in it: without one recovery does not look at the value.
    const HAS_POINTERS: bool = true;

    /// Whether there are bytes between its fields, or behind them, that belong to none.
    const HAS_PADDING: bool = false;

    /// Names the pointers of this value.
    fn trace(&self, tracer: &mut Tracer<'_>);

    /// Has bytes that belong to no field be zero. They are what the stack had there before: a heap would keep that, and parts of it look like addresses.
    ///
    /// # Safety
    /// A value lies there, aligned or not, which nothing else uses.
    unsafe fn clear_padding(_at: *mut Self) {}
}

/// Has the bytes of a value from one offset up to another one be zero.
///
/// # Safety
/// The value is as long, and nothing else uses it.
pub unsafe fn clear(at: *mut u8, from: usize, to: usize) {
    if from < to {
        // SAFETY: promised by the caller.
        unsafe { at.add(from).write_bytes(0, to - from) };
    }
}

/// Names the pointers of the value at an address: [`Trace::trace`] without a type.
pub type TraceFn = unsafe extern "C" fn(*const u8, &mut Tracer<'_>);

/// [`Trace::trace`] as a function of an address.
///
/// # Safety
/// A value of the type may be read there.
pub(crate) unsafe extern "C" fn trace_at<T: Trace>(at: *const u8, tracer: &mut Tracer<'_>) {
    // SAFETY: promised by the caller; any bytes are a value.
    unsafe { (*at.cast::<T>()).trace(tracer) }
}

/// What a pointer leads to: `count` values of a type, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub trace: Option<TraceFn>,
    pub bytes: usize,
    pub count: usize,
}

impl Target {
    pub const fn of<T: Trace>(count: usize) -> Self {
        let trace = if T::HAS_POINTERS { Some(trace_at::<T> as TraceFn) } else { None };
        Self { trace, bytes: size_of::<T>(), count }
    }
}

/// What hears of pointers.
pub(crate) trait Mark {
    /// The word at `place` is a pointer to that, or null, or neither: then it is cleared.
    fn pointer(&mut self, place: *const u64, to: Target);
    /// Values lie there, in the object that is being looked at, behind as many of the type as are skipped.
    fn behind(&mut self, at: *const u8, skipped: usize, what: Target);
    /// Bytes that may hold pointers anywhere.
    fn words(&mut self, at: *const u8, bytes: usize);
}

/// What [`Trace::trace`] tells of its pointers.
pub struct Tracer<'a>(pub(crate) &'a mut dyn Mark);

impl Tracer<'_> {
    /// There is a pointer to an array: `len` values, as many as fit the object at most.
    pub fn slice<T: Trace>(&mut self, to: &PPtr<T>, len: usize) {
        self.0.pointer(core::ptr::from_ref(to).cast(), Target::of::<T>(len));
    }

    /// There are values behind this one, in the same object: `len` of them, as many as lie in the object at most.
    pub fn behind<T: Trace>(&mut self, first: *const T, len: usize) {
        self.0.behind(first.cast(), 0, Target::of::<T>(len));
    }

    /// The same of a part of these values: `len` of them, from a number on.
    pub fn some_behind<T: Trace>(&mut self, first: *const T, from: usize, len: usize) {
        self.0.behind(first.cast(), from, Target::of::<T>(len));
    }

    /// There is a pointer to `count` values of `bytes` bytes each, of which a function names the pointers; none: they have none.
    ///
    /// # Safety
    /// The place is a word of the object that is being looked at, and the function may be called for the address of any such value, whatever it holds.
    pub unsafe fn pointer(
        &mut self,
        place: *const u64,
        trace: Option<TraceFn>,
        bytes: usize,
        count: usize,
    ) {
        self.0.pointer(place, Target { trace, bytes, count });
    }

    /// There are bytes that may be pointers or not: what looks like one keeps its object.
    pub fn words(&mut self, bytes: &[u8]) {
        self.0.words(bytes.as_ptr(), bytes.len());
    }
}

impl fmt::Debug for Tracer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

/// FNV-1a: a number of a text.
pub const fn hash(text: &str, seed: u64) -> u64 {
    let (bytes, mut hash, mut at) = (text.as_bytes(), seed ^ 0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    mix(hash, bytes.len() as u64)
}

/// A number of two.
pub const fn mix(one: u64, two: u64) -> u64 {
    let mixed = (one ^ two.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        // SAFETY: any bytes are a number, which holds nothing.
        unsafe impl Trace for $number {
            const LAYOUT: u64 = hash(stringify!($number), 0);
            const HAS_POINTERS: bool = false;
            fn trace(&self, _: &mut Tracer<'_>) {}
        }
    )* };
}

numbers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, ());

// SAFETY: a word that is looked at before it is used.
unsafe impl<T: Trace> Trace for PPtr<T> {
    // Not of what it leads to, which may be itself.
    const LAYOUT: u64 = hash("PPtr", 0);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        tracer.slice(self, 1);
    }
}

// SAFETY: each element is one.
unsafe impl<T: Trace, const N: usize> Trace for [T; N] {
    const LAYOUT: u64 = mix(hash("array", N as u64), T::LAYOUT);
    const HAS_POINTERS: bool = T::HAS_POINTERS && N > 0;
    const HAS_PADDING: bool = T::HAS_PADDING && N > 0;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.iter().for_each(|element| element.trace(tracer));
    }

    unsafe fn clear_padding(at: *mut Self) {
        if T::HAS_PADDING {
            // SAFETY: each element is a part of the array.
            (0..N).for_each(|number| unsafe { T::clear_padding(at.cast::<T>().add(number)) });
        }
    }
}

// SAFETY: as the value that it holds.
unsafe impl<T: Trace + Copy> Trace for Cell<T> {
    const LAYOUT: u64 = mix(hash("Cell", 0), T::LAYOUT);
    const HAS_POINTERS: bool = T::HAS_POINTERS;
    const HAS_PADDING: bool = T::HAS_PADDING;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        // SAFETY: where the cell is its value is; the tracer may clear a pointer in it, and no other thread has the heap.
        unsafe { (*self.as_ptr()).trace(tracer) }
    }

    unsafe fn clear_padding(at: *mut Self) {
        // SAFETY: where the cell is its value is.
        unsafe { T::clear_padding(at.cast()) };
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        // SAFETY: each element is one.
        unsafe impl<$($name: Trace),*> Trace for ($($name,)*) {
            // The compiler chooses the order of a tuple's fields: where they are is part of the layout.
            const LAYOUT: u64 = {
                let mut layout = hash("tuple", size_of::<Self>() as u64);
                $( layout = mix(mix(layout, core::mem::offset_of!(Self, $at) as u64), $name::LAYOUT); )*
                layout
            };
            const HAS_POINTERS: bool = false $( || $name::HAS_POINTERS )*;
            const HAS_PADDING: bool =
                (size_of::<Self>() > 0 $( + size_of::<$name>() )*) $( || $name::HAS_PADDING )*;

            fn trace(&self, tracer: &mut Tracer<'_>) {
                $( self.$at.trace(tracer); )*
            }

            unsafe fn clear_padding(at: *mut Self) {
                if !Self::HAS_PADDING {
                    return;
                }
                let mut fields = [$( (core::mem::offset_of!(Self, $at), size_of::<$name>()) ),*];
                fields.sort_unstable();
                let mut end = 0;
                // SAFETY: within the tuple, and between its fields.
                unsafe {
                    for (from, bytes) in fields {
                        clear(at.cast(), end, from);
                        end = from + bytes;
                    }
                    clear(at.cast(), end, size_of::<Self>());
                    $( $name::clear_padding(at.byte_add(core::mem::offset_of!(Self, $at)).cast()); )*
                }
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;

    #[test]
    fn bytes_of_no_field_are_cleared_and_no_others() {
        type Value = [((u8, u64), u16, u32); 2];
        let mut value = [MaybeUninit::<Value>::uninit(), MaybeUninit::uninit()];
        // SAFETY: numbers, of which any bytes are a value; all bytes have one.
        unsafe {
            value.as_mut_ptr().write_bytes(0xff, 2);
            Value::clear_padding(value[0].as_mut_ptr());
            let at = value.as_ptr().cast::<u8>();
            let ones = |from| (0..size_of::<Value>()).filter(|n| *at.add(from + n) == 0xff).count();
            assert_eq!(ones(0), 2 * (1 + 8 + 2 + 4));
            assert_eq!(ones(size_of::<Value>()), size_of::<Value>(), "what lies behind");
            let values = value[0].assume_init();
            assert_eq!(values, [((u8::MAX, u64::MAX), u16::MAX, u32::MAX); 2]);
        }
    }

    #[test]
    fn layouts_differ() {
        let layouts = [
            u64::LAYOUT,
            i64::LAYOUT,
            <[u64; 2]>::LAYOUT,
            <[u64; 3]>::LAYOUT,
            <(u64, u32)>::LAYOUT,
            <(u32, u64)>::LAYOUT,
            PPtr::<u64>::LAYOUT,
        ];
        for (number, layout) in layouts.iter().enumerate() {
            assert!(!layouts[..number].contains(layout), "{number}");
        }
        const { assert!(<(u8, u64)>::HAS_PADDING && !<[(u32, u32); 3]>::HAS_PADDING) };
        const { assert!(<(u8, PPtr<u8>)>::HAS_POINTERS && !<(u8, [f64; 3])>::HAS_POINTERS) };
    }
}
