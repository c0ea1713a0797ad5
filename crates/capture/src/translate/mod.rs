//! What any machine code writes: a command's code is translated as it runs, and its copy notes each write.
//!
//! Only the thread that runs a batch runs translated code, and only within the batch; all else is native.
//!
//! - `decode`: what an instruction does.
//! - `rewrite`: a block of code that does the same and notes its writes.
//! - `cache`: memory for translated code.
//! - `tables`: what was translated.
//! - `functions`: what is not translated, or stands for something else.
//! - `process`: the program's own code and memory.
//! - `refusals`: what ends a command, in words.
//! - `scatter`: what instructions write through a vector of addresses.
//! - `signals`: those that wait meanwhile.
//! - `stack`: the translator's own memory.
//! - `system`: what system calls write.
//! - `context`: the way into translated code and out of it.
//! - `calls`: those of functions that are remembered.
//! - `entries`: functions of the program whose entries lead elsewhere.

mod cache;
mod calls;
mod context;
mod decode;
mod emit;
mod entries;
mod functions;
mod modules;
mod process;
mod refusals;
mod restartable;
mod rewrite;
mod scatter;
mod serial;
mod signals;
mod stack;
mod system;
mod tables;

use core::ptr::NonNull;

use spandrel_os::modules::{LIBC, Module};
use spandrel_os::vm;

use crate::Refused;
use cache::{ARENAS, Cache};
use context::{Context, Reason, Segment};
use decode::Decoder;
use emit::Emitter;
use functions::Functions;
use modules::Ranges;
use process::{Process, peek};
use refusals::{Calls, left, refuse, refuse_call};
use rewrite::{ATOMIC, Refusal, Rewriter, STACK, Window};
use scatter::{Layout, Scatter};
use serial::Seen;
pub use signals::Held;
use stack::{GUARD_BYTES, STACK_BYTES, open, open_guarded};
use system::Call;
use tables::Tables;

pub use calls::RememberedCall;
pub use context::{caller, native_slot, remembered};
pub use entries::{Entries, Fixed};

/// Bytes of the log of writes: its end is a multiple of this, and all of it lies before that.
const LOG_BYTES: usize = 1 << 16;
/// Bytes of a program's stack that are taken into account, at most.
const MOST_STACK: u64 = 64 << 20;

/// Figures of a translator.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Blocks that were translated.
    pub blocks: usize,
    /// Bytes of their translations.
    pub bytes: usize,
    /// Times that translated code has called out.
    pub calls_out: u64,
}

/// What takes the writes of translated code.
pub trait Sink {
    /// Bytes are written at an address of the window, or were. Called by the thread that runs the code, and on a stack of its own.
    fn note(&self, at: *const u8, bytes: usize);

    /// The same, of one to eight bytes that were `before`, and that other threads may change as well.
    fn note_atomic(&self, at: *const u8, bytes: usize, before: u64) {
        let _ = before;
        self.note(at, bytes);
    }

    /// The code is about to begin, to wake or to await another thread. What that stores is not noted.
    fn meet(&self) {}
}

/// See the head of this file.
pub struct Translator<S> {
    context: NonNull<Context>,
    stack: NonNull<u8>,
    log: NonNull<u8>,
    cache: Cache,
    tables: Tables,
    decoder: Decoder,
    layout: Layout,
    window: Window,
    functions: Functions,
    /// Where lookups lie, one for each arena: the arena's start, and the code.
    lookups: [(u64, u64); ARENAS],
    sink: S,
    calls_out: u64,
    /// Code was written or changed, that number of times.
    changes: u64,
    seen: Seen,
    /// Where the frame lies from which the code is called.
    frame: u64,
    /// Signals that wait.
    held: Option<Held>,
    /// Where the code lies that was translated.
    ranges: Ranges,
    process: Process,
    /// The process whose command has begun another one last.
    forked_in: i32,
    /// Some of it was unmapped.
    is_stale: bool,
    /// Times that the program has unloaded a library.
    unloaded: u64,
    /// Blocks at most: all are forgotten then.
    most_blocks: usize,
    flushes: u64,
}

/// Bytes of a context, in whole pages.
const CONTEXT_BYTES: usize = size_of::<Context>();

impl<S: Sink> Translator<S> {
    /// One that notes writes to `bytes` bytes at `from`, and does not translate the functions of `native`, which return and do not unwind.
    ///
    /// # Errors
    /// [`Refused::Memory`]; [`Refused::Code`]; [`Refused::Size`]: there are too many functions.
    pub fn new((from, bytes): (usize, usize), native: &[usize], sink: S) -> Result<Self, Refused> {
        let context = open(CONTEXT_BYTES)?.cast::<Context>();
        let (stack, log) = (open_guarded()?, open(2 * LOG_BYTES)?);
        let mut functions = Functions::new(native)?;
        functions.add_native(left as *const () as usize)?;
        // By the address that the program has, and by the C library's own: a table of the linker may be between.
        let exits = Module::named(LIBC).and_then(|libc| libc.function(c"pthread_exit"));
        for exit in [
            exits.map(|exit| exit.as_ptr() as usize),
            Some(libc::pthread_exit as *const () as usize),
        ] {
            exit.map_or(Ok(()), |exit| functions.replace(&[(exit, left as *const () as usize)]))?;
        }
        functions.find_long();
        // SAFETY: the context lies there, in zeroes.
        unsafe {
            Context::begin(
                context.as_ptr(),
                handle::<S>,
                (stack.as_ptr() as usize + GUARD_BYTES + STACK_BYTES) as u64,
            );
        }
        let mut translator = Self {
            context,
            stack,
            log,
            cache: Cache::default(),
            tables: Tables::new()?,
            decoder: Decoder::default(),
            layout: Layout::default(),
            window: Window::new(from as u64, bytes as u64),
            functions,
            lookups: [(0, 0); ARENAS],
            sink,
            calls_out: 0,
            changes: 0,
            seen: Seen::default(),
            frame: u64::MAX,
            held: None,
            ranges: Ranges::default(),
            process: Process::default(),
            forked_in: 0,
            is_stale: false,
            unloaded: modules::unloaded(),
            most_blocks: tables::BLOCKS,
            flushes: 0,
        };
        translator.context().log = translator.log_start();
        translator.context().clear_branches();
        // A command runs code of the program and of libraries, which lie far from each other. Where the kernel refuses memory later on, a command cannot go on.
        for near in [context::after(), modules::entry()] {
            translator.cache.room(near, rewrite::MOST_BYTES)?;
        }
        if decode::has_instructions() { Ok(translator) } else { Err(Refused::Code) }
    }

    fn context(&mut self) -> &mut Context {
        // SAFETY: this value's own, and translated code does not run.
        unsafe { self.context.as_mut() }
    }

    /// A multiple of its length.
    fn log_start(&self) -> u64 {
        (self.log.as_ptr() as u64).next_multiple_of(LOG_BYTES as u64)
    }

    /// Takes all writes out of the log.
    fn drain_log(&mut self) {
        let (start, end) = (self.log_start(), self.context().log);
        for at in (start..end).step_by(rewrite::ENTRY_BYTES as usize) {
            // SAFETY: within the log, whose entries before its end are written.
            let [address, bytes, before, _] = unsafe { *(at as *const [u64; 4]) };
            let (len, is_atomic) = (bytes & !u64::from(ATOMIC), bytes & u64::from(ATOMIC) != 0);
            if len == u64::from(STACK) {
                if self.window.has(address, 16) {
                    refuse(address, Refusal::Stack);
                }
                continue;
            }
            match self.window.part(address, len) {
                Some(part) if part == (address, len) && is_atomic => {
                    self.sink.note_atomic(address as *const u8, len as usize, before);
                }
                _ => self.note(address, len),
            }
        }
        self.context().log = start;
    }

    /// Notes what of a write is one to what is durable.
    fn note(&self, at: u64, bytes: u64) {
        if let Some((at, bytes)) = self.window.part(at, bytes) {
            self.sink.note(at as *const u8, bytes as usize);
        }
    }

    /// Has other functions stand for functions of the program, of which nothing was translated yet: of each pair, where code gets to the first one, the second one runs. A native one
    /// learns its caller from [`caller`].
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn replace(&mut self, pairs: &[(usize, usize)]) -> Result<(), Refused> {
        self.functions.replace(pairs)
    }

    /// Has the calls of functions of the program, of which nothing was translated yet, be remembered: a native function that is called within one finds it by [`remembered`],
    /// with the number that stands beside the function here.
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn remember(&mut self, functions: &[(usize, u32)]) -> Result<(), Refused> {
        self.functions.remember(functions)
    }

    /// Has code be translated that lies in no module, at these addresses: it does not change, and is not unmapped. The last call counts.
    pub fn add_code(&mut self, addresses: core::ops::Range<usize>) {
        self.process.added = (addresses.start as u64, addresses.end as u64);
    }

    /// Has signals of the calling thread wait until [`Translator::let_go`]: those of instructions do not, nor does that of `abort`. Without this they wait while code runs.
    pub fn hold(&mut self) {
        if self.held.is_none() {
            let held = Held::begin();
            self.context().mask = held.mask();
            self.held = Some(held);
        }
    }

    /// Signals wait until the result is dropped: by the same thread, which may have let go of the translator by then.
    pub fn let_go(&mut self) -> Option<Held> {
        let mask = self.context().mask;
        let mut held = self.held.take();
        held.iter_mut().for_each(|held| held.set_mask(mask));
        held
    }

    /// Runs a function with its argument, and notes what it writes.
    ///
    /// # Safety
    /// The function may be called with that argument, and does not unwind.
    pub unsafe fn run(&mut self, function: unsafe extern "C" fn(*mut ()), argument: *mut ()) {
        let was_held = self.held.is_some();
        self.hold();
        let before = Segment::now();
        self.frame = &raw const before as u64;
        if self.window.has(self.frame, 8) {
            refuse(function as *const () as u64, Refusal::Stack);
        }
        self.context().owner = &raw mut *self as u64;
        self.context().calls.clear();
        let unloaded = modules::unloaded();
        if core::mem::take(&mut self.is_stale) || unloaded != self.unloaded {
            self.unloaded = unloaded;
            self.flush();
        }
        self.seen.see(self.changes);
        let code = self.code_of(function as *const () as u64);
        // SAFETY: the context is this thread's, as it has the translator; the code was made for it.
        unsafe {
            Segment::of(self.context.as_ptr()).set();
            context::enter(code, argument);
            before.set();
        }
        // The child of a fork goes on natively.
        // SAFETY: no preconditions.
        let is_child = self.forked_in != 0 && self.forked_in != unsafe { libc::getpid() };
        if !self.context().is_done() && !is_child {
            refuse(context::after(), Refusal::Left);
        }
        self.seen.note(self.changes);
        self.drain_log();
        if is_child {
            // Its mask is its own since it has begun.
            core::mem::forget(self.held.take());
        } else if !was_held {
            drop(self.let_go());
        }
    }

    /// Runs a closure, which does not unwind, and notes what it writes.
    pub fn call<R>(&mut self, work: impl FnOnce() -> R) -> R {
        /// A closure before it has run, and its result after.
        struct Call<F, R>(Option<F>, Option<R>);
        unsafe extern "C" fn call<F: FnOnce() -> R, R>(argument: *mut ()) {
            // SAFETY: the argument is that of `run`.
            let call = unsafe { &mut *argument.cast::<Call<F, R>>() };
            call.1 = call.0.take().map(|work| work());
        }
        fn function<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe extern "C" fn(*mut ()) {
            call::<F, R>
        }
        let mut this = Call(Some(work), None);
        let function = function(&this);
        // SAFETY: the function takes that argument.
        unsafe { self.run(function, (&raw mut this).cast()) };
        match this.1 {
            Some(result) => result,
            // The function has returned.
            None => refuse(0, Refusal::Full),
        }
    }

    /// What takes the writes.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Figures since the beginning.
    pub fn figures(&self) -> Figures {
        let (blocks, bytes) = (self.tables.count(), self.cache.bytes());
        Figures { blocks, bytes, calls_out: self.calls_out }
    }

    /// Forgets all translations. No code is in the middle of a block: return addresses are those of the program's own code.
    fn flush(&mut self) {
        self.cache.clear();
        self.tables.clear();
        self.lookups = [(0, 0); ARENAS];
        self.ranges = Ranges::default();
        self.process.known = (0, 0);
        self.flushes += 1;
        self.context().clear_branches();
    }

    /// The translation of the code at an address, which is made if there is none. No code is in the middle of a block.
    fn code_of(&mut self, from: u64) -> u64 {
        if from == context::after() {
            return context::end();
        }
        if core::mem::take(&mut self.is_stale) {
            self.flush();
        }
        if let Some(code) = self.tables.block(from) {
            return code;
        }
        let is_full = self.tables.count() >= self.most_blocks;
        match if is_full { Err(Refusal::Full) } else { self.translate(from) } {
            Ok(code) => code,
            Err(Refusal::Full) => {
                self.flush();
                self.translate(from).unwrap_or_else(|why| refuse(from, why))
            }
            Err(why) => refuse(from, why),
        }
    }

    fn translate(&mut self, at: u64) -> Result<u64, Refusal> {
        let from = self.functions.instead_of(at);
        let calls_end = self.context().calls.end();
        let room = self.cache.room(from, rewrite::MOST_BYTES).map_err(|_| Refusal::Full)?;
        self.changes += 1;
        let (start, address) = (room.start, room.address);
        let mut code = Emitter::new(room.bytes, address);
        if room.is_fresh {
            let free = self.lookups.iter_mut().find(|(_, code)| *code == 0);
            *free.ok_or(Refusal::Full)? = (start, code.here());
            rewrite::lookup(&mut code);
        }
        let lookup = self.lookups.iter().find(|lookup| lookup.0 == start);
        let lookup = lookup.map_or(0, |(_, code)| *code);
        let to = code.here();
        if let Some(kind) = self.functions.kind_of(from) {
            rewrite::remember(&mut code, kind, calls_end as u64);
        }
        if self.functions.is_native(from) {
            rewrite::native(&mut code, from, lookup);
        } else {
            if self.functions.is_long(from) {
                rewrite::long(&mut code, from, lookup);
            }
            let (decoder, tables, window) = (&mut self.decoder, &mut self.tables, self.window);
            let source = &mut self.process;
            let mut rewriter = Rewriter { decoder, source, tables, window, lookup };
            rewriter.block(from, &mut code)?;
        }
        code.len().ok_or(Refusal::Full)?;
        let end = code.here();
        self.ranges.add(self.process.around(from, rewrite::LONGEST_BLOCK));
        self.cache.take(end);
        if self.tables.set_block(at, to) { Ok(to) } else { Err(Refusal::Full) }
    }

    /// Has an exit lead to the code that it leads to.
    fn link(&mut self, number: u32) -> u64 {
        let Some(exit) = self.tables.exit(number) else { refuse(0, Refusal::Full) };
        let flushes = self.flushes;
        let to = self.code_of(exit.target);
        if self.flushes != flushes {
            return to;
        }
        self.changes += 1;
        let distance = |from: u64| i32::try_from(to.wrapping_sub(from) as i64).ok();
        match distance(exit.stub + 5) {
            Some(distance) => {
                let [a, b, c, d] = distance.to_le_bytes();
                self.cache.patch(exit.stub, &[0xe9, a, b, c, d]);
            }
            None => self.cache.patch(exit.stub, &rewrite::far_jump(to)),
        }
        if let Some(distance) = distance(exit.site + 4).filter(|_| exit.site != 0) {
            self.cache.patch(exit.site, &distance.to_le_bytes());
        }
        to
    }

    /// A system call follows.
    fn system_call(&mut self) {
        let window = self.window;
        let context = self.context();
        // rax; rdi, rsi, rdx, r10, r8, r9.
        let [number, _, c, _, _, _, b, a, e, f, d, ..] = context.registers;
        let (arguments, returns_to) = ([a, b, c, d, e, f], context.detail);
        if signals::waits(number, arguments) {
            refuse_call(returns_to, number, Calls::Waits);
        }
        if number == libc::SYS_rt_sigprocmask as u64 {
            let mut mask = context.mask;
            let answer = signals::change(arguments, &mut mask, &mut |at, len| self.note(at, len));
            let context = self.context();
            context.mask = mask;
            context.target += rewrite::SKIPS_AFTER;
            if let Some(result) = context.registers.first_mut() {
                *result = answer as u64;
            }
            return;
        }
        if system::meets(number, arguments) {
            self.sink.meet();
        }
        let mut note = |at: u64, bytes: u64| self.note(at, bytes);
        // SAFETY: the program makes the call next.
        match unsafe { system::call(number, arguments, window, &mut note) } {
            Call::Made => {}
            Call::Unmaps(parts)
                if parts.iter().any(|(at, bytes)| self.ranges.touch(*at, *bytes)) =>
            {
                self.is_stale = true;
                // The call's own return leads to the translator, which forgets the code then.
                self.context().clear_branches();
            }
            Call::Unmaps(..) => {}
            Call::Forks => {
                // A thread may begin there later.
                self.cache.keep();
                // SAFETY: no preconditions.
                self.forked_in = unsafe { libc::getpid() };
                self.context().target += rewrite::FORKS_AFTER;
            }
            Call::Refused => refuse_call(returns_to, number, Calls::Unknown),
            Call::Takes => refuse_call(returns_to, number, Calls::Window),
        }
    }

    /// Refuses to go on where the command's caller goes on: by `longjmp`, or by the end of the thread, which unwinds its stack.
    fn check_frame(&mut self) {
        let context = self.context();
        let is_branch = [Reason::Exit as u32, Reason::Branch as u32].contains(&context.reason);
        let stack = context.registers.get(usize::from(emit::RSP.0)).copied().unwrap_or(0);
        // The C library has a thread's descriptor at the end of its stack, but for the first thread, above whose stack there is none.
        // SAFETY: no preconditions.
        let me = unsafe { libc::pthread_self() as u64 };
        let end = if me > self.frame { me } else { u64::MAX };
        // Where the command was called on a stack of the program's own making, others may lie above it.
        let end = end.min(self.frame.saturating_add(MOST_STACK));
        if is_branch && (self.frame..end).contains(&stack) {
            let (reason, argument) = (self.context().reason, self.context().argument);
            let exit = self.tables.exit(argument).filter(|_| reason == Reason::Exit as u32);
            refuse(exit.map_or(self.context().target, |exit| exit.target), Refusal::Left);
        }
    }

    /// What translated code calls out for.
    fn answer(&mut self) {
        self.calls_out += 1;
        let context = self.context();
        let (reason, argument, target) = (context.reason, context.argument, context.target);
        self.check_frame();
        if reason == Reason::Exit as u32 {
            let to = self.link(argument);
            self.context().target = to;
        } else if reason == Reason::Branch as u32 {
            let to = self.code_of(target);
            self.context().set_branch(target, to);
            self.context().target = to;
        } else if reason == Reason::Log as u32 {
            self.drain_log();
        } else if reason == Reason::SystemCall as u32 {
            // In the order of the stores.
            self.drain_log();
            self.system_call();
        } else if reason == Reason::Calls as u32 {
            self.context().calls.make_room();
        } else if reason == Reason::String as u32 {
            self.drain_log();
            let context = self.context();
            let (count, to) = (context.registers[1], context.registers[7]);
            let (element, bytes) = (u64::from(argument), count.saturating_mul(u64::from(argument)));
            // Downwards the first element is the last one in memory.
            let is_down = context.goes_down();
            let from = if is_down { to.saturating_add(element).saturating_sub(bytes) } else { to };
            self.note(from, bytes);
        } else if reason == Reason::Scatter as u32 {
            self.drain_log();
            let layout = self.layout;
            let context = self.context();
            let scatter = Scatter::from_words(argument, context.detail as u32);
            let (registers, state) = (context.registers, context.state);
            scatter.each(&registers, &state, layout, &mut |at, bytes| self.note(at, bytes));
        }
    }
}

impl<S> Drop for Translator<S> {
    fn drop(&mut self) {
        // SAFETY: this value's own, which nothing uses any more.
        unsafe {
            vm::release(self.context.as_ptr().cast(), CONTEXT_BYTES);
            vm::release(self.stack.as_ptr(), GUARD_BYTES + STACK_BYTES);
            vm::release(self.log.as_ptr(), 2 * LOG_BYTES);
        }
    }
}

/// Called by translated code, on the translator's stack.
unsafe extern "C" fn handle<S: Sink>(context: *mut Context) {
    // SAFETY: the owner lives while its code runs, and waits for it.
    unsafe {
        let owner = (*context).owner as *mut Translator<S>;
        (*owner).answer();
    }
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod differential;
#[cfg(any(test, fuzzing))]
mod executed;
#[cfg(test)]
mod refused;
#[cfg(any(test, fuzzing))]
mod rewritten;
#[cfg(test)]
mod scattered;
#[cfg(any(test, fuzzing))]
mod second;
#[cfg(all(test, target_env = "gnu"))]
mod strings;
#[cfg(test)]
mod tests;

/// What fuzzing tries.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod trial {
    pub use super::executed::Machine;
    pub use super::rewritten::Trial;
    pub use super::second::Pair;
}
