//! Whether the kernel draws the addresses of a program.

use crate::env::{errno, read_file, set_errno};

/// Asks for the personality, and changes nothing.
const ASK: libc::c_ulong = 0xffff_ffff;

/// Whether the next program that the process starts has the same addresses each time, and this one has.
pub fn has_fixed_addresses() -> bool {
    let kernel_draws = || {
        let mut buffer = [0; 8];
        // Without the file it is taken to draw them, as kernels do.
        read_file(c"/proc/sys/kernel/randomize_va_space", &mut buffer)
            .map_or(true, |text| !text.starts_with(b"0"))
    };
    // SAFETY: the call reads a value of the process.
    let now = unsafe { libc::personality(ASK) };
    now >= 0 && now & libc::ADDR_NO_RANDOMIZE != 0 || !kernel_draws()
}

/// Has the next program that the process starts have the same addresses each time.
///
/// # Errors
/// The error's number: the kernel refuses (`EPERM` of a seccomp filter), or drops the setting (`ENOSYS`).
pub fn fix_addresses() -> Result<(), i32> {
    let before_call = errno();
    // SAFETY: the calls change what the next program is started with, and nothing of this one.
    let outcome = unsafe {
        let now = libc::personality(ASK);
        let set = (now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong;
        if now < 0 || libc::personality(set) < 0 { Err(errno()) } else { Ok(()) }
    };
    set_errno(before_call);
    outcome.and(if has_fixed_addresses() { Ok(()) } else { Err(libc::ENOSYS) })
}

/// Takes [`fix_addresses`] back: the program could not be started again.
pub fn draw_addresses() {
    let before_call = errno();
    // SAFETY: as there.
    unsafe {
        let now = libc::personality(ASK);
        if now >= 0 {
            libc::personality((now & !libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
    }
    set_errno(before_call);
}

/// Whether the program has more rights than its caller: the kernel drops the setting when such a one starts.
pub fn is_privileged() -> bool {
    // SAFETY: reads a value of the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The setting is the thread's.
    #[test]
    fn a_program_that_was_not_started_again_has_no_fixed_addresses() {
        let before = has_fixed_addresses();
        if fix_addresses().is_ok() {
            assert!(has_fixed_addresses());
            draw_addresses();
            let mut buffer = [0; 8];
            let text = read_file(c"/proc/sys/kernel/randomize_va_space", &mut buffer);
            assert_eq!(has_fixed_addresses(), text.is_ok_and(|text| text.starts_with(b"0")));
            if before {
                fix_addresses().unwrap();
            }
        }
    }
}
