//! Functions that nothing leads to: a compiler makes a function a part of those that call it, and keeps it for others all the same. A rule about such a function has no effect.
//!
//! What leads to a function is a distance in code, or an address in data. Any bytes that could be one count: a function may pass for called that is not, and none for not called that is.

use std::collections::HashMap;

use spandrel_os::modules::Module;

/// The name of the first function of the program that nothing leads to; `functions`: addresses and names. Complexity: a look at each byte of the program, once.
pub fn missing<'n>(functions: &[(usize, &'n str)]) -> Option<&'n str> {
    let program = Module::program()?;
    let mut left: HashMap<usize, &str> = functions.iter().copied().collect();
    let names = |left: &HashMap<usize, &'n str>| {
        functions
            .iter()
            .map(|(_, name)| *name)
            .find(|name| left.values().any(|other| other == name))
    };
    // Of another file: its calls are not looked for.
    left.retain(|at, _| program.addresses().contains(at));
    let (first, last) = (left.keys().min().copied()?, left.keys().max().copied()?);
    program.each_constants(&mut |bytes| {
        for (at, four) in bytes.windows(4).enumerate() {
            let Ok(distance) = four.try_into().map(i32::from_le_bytes) else { continue };
            let behind = bytes.as_ptr() as usize + at + 4;
            let to = behind.wrapping_add_signed(distance as isize);
            if (first..=last).contains(&to) {
                left.remove(&to);
            }
        }
    });
    program.each_variables(&mut |range| {
        let from = range.start.next_multiple_of(size_of::<usize>());
        for at in (from..range.end.saturating_sub(7)).step_by(size_of::<usize>()) {
            // SAFETY: a variable of the program, which has one thread.
            left.remove(&unsafe { (at as *const usize).read_volatile() });
        }
    });
    names(&left)
}
