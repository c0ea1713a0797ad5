//! Numbers of the program: variables, and what its functions are called with.

use std::ffi::{CString, c_void};

use spandrel_adapter::{ARGUMENTS, Condition, Value};

/// Arguments that lie in registers.
pub type Arguments = [usize; ARGUMENTS];

enum Start {
    Address(usize),
    Argument(usize),
}

/// A value whose symbol was found.
pub struct Found {
    start: Start,
    loads: Vec<i64>,
    offset: i64,
    bytes: usize,
}

/// A condition whose symbols were found.
pub struct Test {
    value: Found,
    mask: u64,
    equals: Option<u64>,
}

/// The address that the program's loader finds under a name.
///
/// # Errors
/// In words: there is none.
pub fn symbol(name: &str) -> Result<usize, String> {
    let text = CString::new(name).map_err(|_| format!("{name:?} is no name"))?;
    // SAFETY: the name is a string.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) };
    match found as usize {
        0 => Err(format!(
            "the program shows no function or variable {name}; it must be linked with -rdynamic, and be of a version that the adapter is for"
        )),
        at => Ok(at),
    }
}

impl Found {
    /// # Errors
    /// In words: a symbol is not there.
    pub fn new(value: &Value) -> Result<Self, String> {
        let start = match (&value.symbol, value.argument) {
            (Some(name), _) => Start::Address(symbol(name)?),
            (None, argument) => Start::Argument(argument.unwrap_or(0)),
        };
        let Value { loads, offset, bytes, .. } = value;
        Ok(Self { start, loads: loads.clone(), offset: *offset, bytes: *bytes })
    }

    /// The number now. A null pointer on the way ends it: 0.
    ///
    /// # Safety
    /// The adapter is right about the program.
    pub unsafe fn read(&self, arguments: &Arguments) -> usize {
        let mut value = match self.start {
            Start::Address(at) => at,
            Start::Argument(number) => arguments.get(number).copied().unwrap_or(0),
        };
        for (number, load) in self.loads.iter().enumerate() {
            if value == 0 {
                return 0;
            }
            let at = value.wrapping_add_signed(*load as isize);
            let bytes = if number + 1 == self.loads.len() { self.bytes } else { 8 };
            // SAFETY: promised by the caller.
            value = unsafe {
                match bytes {
                    1 => usize::from((at as *const u8).read_volatile()),
                    2 => usize::from((at as *const u16).read_unaligned()),
                    4 => (at as *const u32).read_unaligned() as usize,
                    _ => (at as *const usize).read_unaligned(),
                }
            };
        }
        value.wrapping_add_signed(self.offset as isize)
    }
}

impl Test {
    /// # Errors
    /// In words: a symbol is not there.
    pub fn new(condition: &Condition) -> Result<Self, String> {
        let named = condition.equals_symbol.as_deref().map(symbol).transpose()?;
        let equals = named.map(|at| at as u64).or(condition.equals);
        Ok(Self { value: Found::new(&condition.value)?, mask: condition.mask, equals })
    }

    /// # Errors
    /// In words: a symbol is not there.
    pub fn all(conditions: &[Condition]) -> Result<Vec<Self>, String> {
        conditions.iter().map(Self::new).collect()
    }

    /// Whether it holds.
    ///
    /// # Safety
    /// As for [`Found::read`].
    pub unsafe fn holds(&self, arguments: &Arguments) -> bool {
        // SAFETY: promised by the caller.
        let value = unsafe { self.value.read(arguments) } as u64 & self.mask;
        self.equals.map_or(value != 0, |equals| value == equals)
    }
}
