//! What a thread that the program does not know does so that the program does not notice it.

use crate::call::{call, thread_id};
use crate::env;

/// Gives the calling thread a table of open files of its own, which is empty: the program's is as it was, and no descriptor that the program
/// expects to get is taken. False where the kernel (5.9) or a filter refuses.
pub fn take_own_files() -> bool {
    const ALL: [usize; 3] = [0, libc::c_uint::MAX as usize, libc::CLOSE_RANGE_UNSHARE as usize];
    // SAFETY: closes nothing in the table that other threads have.
    unsafe { call(libc::SYS_close_range, ALL) }.is_ok()
}

/// Ends the process as its first thread ended, if that and all others but the calling one have. The kernel does not do that as long as there
/// is a thread: the program ended its first one by the bare `exit`, or a filter did. A look takes 20 us, and opens a file.
pub fn end_if_last() {
    let mut text = [0; 1024];
    let text = env::read_beginning(c"/proc/self/stat", &mut text);
    if let Some(status) = last_status(text) {
        end(status);
    }
}

/// The status with which the first thread ended, if there is one other.
fn last_status(stat: &[u8]) -> Option<i32> {
    // The name may hold anything.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = core::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    // From the third on.
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
    let is_last = field(3)? == "Z" && field(20)? == "2";
    is_last.then(|| field(52)?.parse().ok()).flatten()
}

/// Ends the process with a status as `wait` tells it.
fn end(status: i32) -> ! {
    let signal = status & 0x7f;
    // SAFETY: nothing of the program runs any more.
    unsafe {
        if signal != 0 {
            // `struct sigaction` of the kernel: all zero is the default.
            let default = [0_usize; 4];
            let mask = 1_u64 << (signal - 1);
            let (signal, mask) = (signal as usize, (&raw const mask).expose_provenance());
            let _ =
                call(libc::SYS_rt_sigaction, [signal, default.as_ptr().expose_provenance(), 0, 8]);
            let _ = call(libc::SYS_rt_sigprocmask, [libc::SIG_UNBLOCK as usize, mask, 0, 8]);
            let _ = call(libc::SYS_tgkill, [env::pid() as usize, thread_id() as usize, signal]);
        }
        loop {
            let _ = call(libc::SYS_exit_group, [(status >> 8) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn the_last_thread_of_a_process_is_told() {
        let stat = |state: &str, threads: u32, status: i32| {
            let between = "0 ".repeat(16);
            let rest = "0 ".repeat(31);
            format!("12 (a) Z 2) {state} {between}{threads} {rest}{status}\n")
        };
        assert_eq!(last_status(stat("Z", 2, 31).as_bytes()), Some(31));
        assert_eq!(last_status(stat("Z", 2, 7 << 8).as_bytes()), Some(7 << 8));
        assert_eq!(last_status(stat("Z", 3, 0).as_bytes()), None, "others go on");
        assert_eq!(last_status(stat("S", 2, 0).as_bytes()), None, "the first goes on");
        assert_eq!(last_status(b""), None);
    }
}
