//! `spandrel heap create`: a new heap.

use super::args::CreateArgs;
use super::failed::failed;
use super::{refuse_existing, words};
use spandrel_console::Failure;
use spandrel_console::say;
use spandrel_pages::ByteSize;
use spandrel_pheap::{Error, LIMIT, Options};
use spandrel_report::numbers::bytes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// No place of the address space has room for more.
const MOST_BYTES: usize = 14 << 40;

/// Makes a heap.
pub fn run(args: &CreateArgs) -> Result<u8, Failure> {
    let path = &args.file;
    let size = size(&args.size)?;
    refuse_existing(path)?;
    let mut options = Options::new().size(size).medium(args.medium.choice());
    if size > LIMIT {
        options = options.limit(size);
    }
    if args.fixed {
        options = options.fixed();
    }
    if args.sums {
        options = options.sums(true);
    }
    let heap = options.create(path.as_os_str().as_bytes());
    let heap = heap.map_err(|why| not_created(path, &args.size, why))?;
    let survives = words::survival(heap.medium().guarantee()).text();
    let base = heap.fixed_base().map(|base| format!("; always at {base:#x}"));
    let line = format!(
        "{}: {}, on {survives}{}",
        path.display(),
        bytes(heap.bytes() as f64),
        base.unwrap_or_default()
    );
    heap.close().map_err(|why| failed(path, why))?;
    say::out(line)?;
    Ok(0)
}

fn size(text: &str) -> Result<usize, Failure> {
    let size = ByteSize::parse(text)
        .map_err(|why| Failure::refused(format!("--size: '{text}': {why}")))?;
    if size.0 > MOST_BYTES {
        return Err(Failure::refused(format!(
            "--size: '{text}' is more than a process has room for; name at most 14TiB"
        )));
    }
    Ok(size.0)
}

fn not_created(path: &Path, size: &str, why: Error) -> Failure {
    match why {
        Error::Size(_) => Failure::refused(format!(
            "--size: '{size}' is less than the 704 KiB that a heap has at least; name a size such as \
             64MiB"
        )),
        Error::DiskFull => Failure::refused(format!(
            "{}: {}; name a smaller --size than {size}, or another place",
            path.display(),
            why.reason()
        )),
        Error::NoMemory => Failure::refused(format!(
            "{}: {}; name a smaller --size than {size}, or have 'ulimit -v' allow more",
            path.display(),
            why.reason()
        )),
        Error::System(libc::EEXIST) => {
            refuse_existing(path).err().unwrap_or_else(|| failed(path, why))
        }
        // These have a way out of their own.
        Error::System(libc::EMFILE | libc::ENFILE | libc::EIO) => failed(path, why),
        Error::System(_) => Failure::refused(format!(
            "{}: {}; name a file that can be made",
            path.display(),
            why.reason()
        )),
        why => failed(path, why),
    }
}
