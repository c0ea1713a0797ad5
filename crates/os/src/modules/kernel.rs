//! The file that the kernel itself maps into each process.

use core::ptr::{self, NonNull};

use super::{Dynamic, Module};

impl Module {
    /// The kernel's own file (vDSO), which it maps into each process; `None`: it does not, or what reads system calls hides it (valgrind).
    pub fn of_the_kernel() -> Option<Self> {
        let errno = crate::env::errno();
        // SAFETY: reads a value of the process.
        let at = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        crate::env::set_errno(errno);
        let file = NonNull::new(at as *mut libc::Elf64_Ehdr)?;
        // SAFETY: the kernel says that its file is mapped there, as a whole, as long as the process is.
        let headers = unsafe {
            let (first, count) = (file.as_ref().e_phoff, file.as_ref().e_phnum);
            core::slice::from_raw_parts(
                at.wrapping_add(first as usize) as *const libc::Elf64_Phdr,
                count.into(),
            )
        };
        let of = |kind| headers.iter().find(|header| header.p_type == kind);
        let (code, dynamic) = (of(libc::PT_LOAD)?, of(libc::PT_DYNAMIC)?);
        let base = at.wrapping_add(code.p_offset as usize).wrapping_sub(code.p_vaddr as usize);
        Some(Self {
            addresses: at..at.saturating_add(code.p_memsz as usize),
            base,
            dynamic: base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic,
            headers,
            of_thread: ptr::null(),
        })
    }
}
