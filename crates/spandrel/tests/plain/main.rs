//! States of ordinary types: models, panics, kills, and what is refused.

mod children;
mod states;

use std::process::exit;

use spandrel::durable::{Allocator, fix_addresses};

#[global_allocator]
static ALLOC: Allocator = Allocator::new();

/// A test, by its name.
type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("ordinary_collections_are_durable", states::ordinary_collections_are_durable),
    ("a_command_that_panics_is_undone", states::a_command_that_panics_is_undone),
    ("a_large_command_is_durable", states::a_large_command_is_durable),
    ("what_leaves_a_command_is_freed_later", states::what_leaves_a_command_is_freed_later),
    ("objects_of_the_program_stay_outside", states::objects_of_the_program_stay_outside),
    ("clients_write_side_by_side", states::clients_write_side_by_side),
    ("trait_objects_and_nodes_are_there_again", states::trait_objects_and_nodes_are_there_again),
    ("a_copy_is_a_state", states::a_copy_is_a_state),
    ("what_system_calls_store_is_durable", states::what_system_calls_store_is_durable),
    ("another_type_is_refused", states::another_type_is_refused),
    ("other_addresses_are_refused", children::other_addresses_are_refused),
    ("another_build_is_refused", children::another_build_is_refused),
    ("a_pointer_out_of_the_state_is_reported", states::a_pointer_out_of_the_state_is_reported),
    ("kills_lose_nothing", children::kills_lose_nothing),
    ("it_works_without_userfaultfd", children::it_works_without_userfaultfd),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().and_then(|first| first.strip_prefix("child=")) {
        return children::run(role, &arguments[1..]);
    }
    fix_addresses().unwrap();
    // Panics on purpose would fill pages with traces.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let mut failed = Vec::new();
    for (name, test) in TESTS.iter().filter(|(name, _)| filter.is_none_or(|f| name.contains(&**f)))
    {
        let outcome = std::panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_err() {
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        eprintln!("failed: {failed:?}");
        exit(101);
    }
}
