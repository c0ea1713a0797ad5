//! System calls by the instruction itself, past the C library.
//!
//! The C library's functions are symbols, which a library of the program's may have in its own hands (`faketime` has `clock_gettime` and
//! `syscall`): it may allocate, take locks or read variables of its thread, within an allocator that holds a lock, and on a thread beside the program that has no
//! variables but ours. None of these calls is a place where a thread may be cancelled, and `errno` stays as it is.

use core::arch::asm;

/// Makes a system call, of up to six arguments.
///
/// # Errors
/// What `errno` would be.
///
/// # Safety
/// As for the call of that number.
#[inline]
pub unsafe fn call<const N: usize>(
    number: libc::c_long,
    arguments: [usize; N],
) -> Result<usize, i32> {
    const { assert!(N <= 6) };
    let mut all = [0; 6];
    let mut given = arguments.into_iter();
    all.iter_mut().zip(&mut given).for_each(|(place, argument)| *place = argument);
    let [first, second, third, fourth, fifth, sixth] = all;
    let returned: isize;
    // SAFETY: promised by the caller; the kernel changes no other registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => returned,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match returned {
        // What the kernel returns for errors (`MAX_ERRNO`).
        -4095..=-1 => Err(-returned as i32),
        _ => Ok(returned as usize),
    }
}

/// The calling thread's number in the kernel.
#[inline]
pub fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { call(libc::SYS_gettid, []) }.unwrap_or(0) as u32
}

/// Sleeps for as long, or less if a signal comes.
pub fn sleep(nanos: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos.min(999_999_999).into() };
    // SAFETY: the time is read; the rest of an interrupted sleep is not asked for.
    let _ = unsafe { call(libc::SYS_nanosleep, [(&raw const time).expose_provenance(), 0]) };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn calls_return_what_the_c_library_would_and_leave_its_number_alone() {
        crate::env::set_errno(77);
        // SAFETY: asks for numbers, and for what is not there.
        unsafe {
            assert_eq!(call(libc::SYS_getpid, []), Ok(std::process::id() as usize));
            assert_eq!(call(libc::SYS_close, [usize::MAX]), Err(libc::EBADF));
            let text = b"a text";
            let mut pipe = [0_i32; 2];
            assert_eq!(call(libc::SYS_pipe2, [pipe.as_mut_ptr().expose_provenance(), 0]), Ok(0));
            let [from, to] = pipe.map(|file| file as usize);
            assert_eq!(call(libc::SYS_write, [to, text.as_ptr().expose_provenance(), 6]), Ok(6));
            let mut read = [0; 6];
            assert_eq!(
                call(libc::SYS_read, [from, read.as_mut_ptr().expose_provenance(), 6]),
                Ok(6)
            );
            assert_eq!(&read, text);
            // All six arguments: a page of the file, which is none.
            let refused = call(libc::SYS_mmap, [0, 4096, 1, 2, from, 0]);
            assert_eq!(refused, Err(libc::ENODEV));
            assert!([from, to].iter().all(|file| call(libc::SYS_close, [*file]) == Ok(0)));
        }
        assert!(thread_id() != 0);
        assert_eq!(crate::env::errno(), 77);
    }
}
