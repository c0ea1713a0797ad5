//! Fig. 12: what Wasmtime's guide calls linking. Two modules, of which the second imports what the
//! first exports and both import a function of the host, are instantiated through a `Linker`, and a
//! function is called; then all of it is dropped. Each time as a server does it that starts a
//! module for a request: the engine and the compiled modules are there, the rest is new.

use crate::checksum::Checksum;
use wasmtime::{Config, Engine, Instance, Linker, Module, Result, Store};

/// Keeps a sum in its memory, and lends both.
const LEDGER: &str = r#"
(module
  (import "host" "weigh" (func $weigh (param i32) (result i32)))
  (memory (export "memory") 1)
  (global $entries (export "entries") (mut i32) (i32.const 0))
  (table (export "table") 4 funcref)
  (func (export "enter") (param $at i32) (param $amount i32) (result i32)
    (i32.store (local.get $at) (call $weigh (local.get $amount)))
    (global.set $entries (i32.add (global.get $entries) (i32.const 1)))
    (i32.load (local.get $at)))
  (func (export "entered") (result i32) (global.get $entries))
  (data (i32.const 64) "ledger"))
"#;

/// Enters a series of amounts into the other's memory and adds up what is there.
const CLERK: &str = r#"
(module
  (import "ledger" "enter" (func $enter (param i32 i32) (result i32)))
  (import "ledger" "entered" (func $entered (result i32)))
  (import "ledger" "memory" (memory 1))
  (import "host" "weigh" (func $weigh (param i32) (result i32)))
  (func (export "run") (param $from i32) (result i32)
    (local $at i32) (local $sum i32)
    (loop $next
      (local.set $sum (i32.add (local.get $sum)
        (call $enter (i32.add (i32.const 256) (i32.mul (local.get $at) (i32.const 4)))
          (i32.add (local.get $from) (local.get $at)))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 8))))
    (i32.add (call $weigh (local.get $sum)) (call $entered))))
"#;

/// Links, runs and drops `count` times.
pub fn link(count: usize) -> Result<u64, String> {
    let linked = || -> Result<u64> {
        // One compiler thread, and memory that is taken anew each time: what is asked of the
        // allocator is what is measured.
        let engine = Engine::new(&Config::new())?;
        let modules = [Module::new(&engine, LEDGER)?, Module::new(&engine, CLERK)?];
        let mut sum = Checksum::new();
        for number in 0..count {
            sum.add(link_once(&engine, &modules, number as i32)? as u64);
        }
        Ok(sum.value())
    };
    linked().map_err(|why| format!("{why:#}"))
}

fn link_once(engine: &Engine, [ledger, clerk]: &[Module; 2], from: i32) -> Result<i32> {
    let mut linker: Linker<i32> = Linker::new(engine);
    linker.func_wrap("host", "weigh", |amount: i32| amount.wrapping_mul(3).rotate_left(5))?;
    let mut store = Store::new(engine, from);
    let first: Instance = linker.instantiate(&mut store, ledger)?;
    linker.instance(&mut store, "ledger", first)?;
    let second = linker.instantiate(&mut store, clerk)?;
    second.get_typed_func::<i32, i32>(&mut store, "run")?.call(&mut store, from)
}
