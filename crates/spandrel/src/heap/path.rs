//! The types that are paths.

use core::ffi::CStr;

/// A path: a `str`, `Path`, `OsStr` or `CStr`, an owner of one of these, or bytes.
///
/// It is not `AsRef<Path>`: bytes are paths as well, also without the standard library.
pub trait AsPath {
    /// The bytes of the path, as the kernel has them.
    fn path_bytes(&self) -> &[u8];
}

impl AsPath for str {
    fn path_bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsPath for [u8] {
    fn path_bytes(&self) -> &[u8] {
        self
    }
}

impl<const BYTES: usize> AsPath for [u8; BYTES] {
    fn path_bytes(&self) -> &[u8] {
        self
    }
}

impl AsPath for CStr {
    fn path_bytes(&self) -> &[u8] {
        self.to_bytes()
    }
}

impl<T: AsPath + ?Sized> AsPath for &T {
    fn path_bytes(&self) -> &[u8] {
        (**self).path_bytes()
    }
}

#[cfg(feature = "std")]
mod with_std {
    use super::AsPath;
    use std::borrow::{Cow, ToOwned};
    use std::boxed::Box;
    use std::ffi::{CString, OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::rc::Rc;
    use std::string::String;
    use std::sync::Arc;
    use std::vec::Vec;

    impl AsPath for OsStr {
        fn path_bytes(&self) -> &[u8] {
            self.as_bytes()
        }
    }

    impl AsPath for Path {
        fn path_bytes(&self) -> &[u8] {
            self.as_os_str().as_bytes()
        }
    }

    impl AsPath for CString {
        fn path_bytes(&self) -> &[u8] {
            self.as_bytes()
        }
    }

    /// Types that own or share a path.
    macro_rules! owners {
        ($($owner:ty $(: $($parameter:ident)+)?),+ $(,)?) => {$(
            impl$(<$($parameter: AsPath + ?Sized),+>)? AsPath for $owner {
                fn path_bytes(&self) -> &[u8] {
                    (**self).path_bytes()
                }
            }
        )+};
    }

    owners!(String, OsString, PathBuf, Vec<u8>, Box<T>: T, Rc<T>: T, Arc<T>: T);

    impl<T: AsPath + ToOwned + ?Sized> AsPath for Cow<'_, T> {
        fn path_bytes(&self) -> &[u8] {
            (**self).path_bytes()
        }
    }
}
