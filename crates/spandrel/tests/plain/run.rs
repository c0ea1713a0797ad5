//! The tests, and what runs them.

use std::process::exit;

use spandrel::durable::fix_addresses;

use crate::{children, histories, noted, signals, states, threads, undone};

/// A test, by its name.
type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("results_and_what_is_outside_may_be_long", states::results_and_what_is_outside_may_be_long),
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
    ("a_state_is_opened_beside_newer_ones", states::a_state_is_opened_beside_newer_ones),
    ("other_addresses_are_refused", children::other_addresses_are_refused),
    ("another_build_is_refused", children::another_build_is_refused),
    ("a_pointer_out_of_the_state_is_reported", states::a_pointer_out_of_the_state_is_reported),
    (
        "an_arc_outside_outlives_an_undone_command",
        undone::an_arc_outside_outlives_an_undone_command,
    ),
    ("results_of_undone_commands_own_nothing", undone::results_of_undone_commands_own_nothing),
    (
        "what_an_undone_command_has_freed_is_there",
        undone::what_an_undone_command_has_freed_is_there,
    ),
    (
        "a_destructor_of_a_panicking_thread_writes",
        undone::a_destructor_of_a_panicking_thread_writes,
    ),
    (
        "a_command_that_keeps_what_a_panic_has_made_is_undone",
        undone::a_command_that_keeps_what_a_panic_has_made_is_undone,
    ),
    (
        "the_result_of_a_command_that_is_too_long_counts_once",
        undone::the_result_of_a_command_that_is_too_long_counts_once,
    ),
    (
        "a_command_that_changes_millions_of_places_is_durable",
        undone::a_command_that_changes_millions_of_places_is_durable,
    ),
    (
        "a_long_command_has_a_log_that_is_little_longer",
        undone::a_long_command_has_a_log_that_is_little_longer,
    ),
    ("a_command_that_forks_is_the_parents", undone::a_command_that_forks_is_the_parents),
    ("a_child_that_drops_the_state_ends", undone::a_child_that_drops_the_state_ends),
    ("what_was_freed_before_the_end_is_free", undone::what_was_freed_before_the_end_is_free),
    (
        "owners_outside_are_not_counted_after_them",
        undone::owners_outside_are_not_counted_after_them,
    ),
    ("what_a_result_stores_is_durable", undone::what_a_result_stores_is_durable),
    (
        "a_process_that_is_not_started_again_is_as_it_was",
        children::a_process_that_is_not_started_again_is_as_it_was,
    ),
    ("kills_lose_nothing", children::kills_lose_nothing),
    (
        "a_panic_that_aborts_leaves_the_state_of_the_batch_before",
        children::a_panic_that_aborts_leaves_the_state_of_the_batch_before,
    ),
    ("what_commands_change_is_noted", noted::what_commands_change_is_noted),
    (
        "kills_leave_a_history_that_is_linearizable",
        histories::kills_leave_a_history_that_is_linearizable,
    ),
    (
        "a_variable_that_leads_into_the_state_is_reported",
        children::a_variable_that_leads_into_the_state_is_reported,
    ),
    (
        "what_other_threads_store_for_a_command_is_durable",
        threads::what_other_threads_store_for_a_command_is_durable,
    ),
    (
        "what_other_threads_store_for_an_undone_command_is_undone",
        threads::what_other_threads_store_for_an_undone_command_is_undone,
    ),
    (
        "what_is_stored_unseen_has_room_in_the_log",
        threads::what_is_stored_unseen_has_room_in_the_log,
    ),
    ("threads_of_an_undone_command_have_ended", threads::threads_of_an_undone_command_have_ended),
    ("what_is_stored_unseen_is_durable_later", threads::what_is_stored_unseen_is_durable_later),
    ("handlers_see_whole_commands", signals::handlers_see_whole_commands),
    ("a_limited_address_space_is_shared", children::a_limited_address_space_is_shared),
    ("it_works_without_userfaultfd", children::it_works_without_userfaultfd),
];

pub fn main() {
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
