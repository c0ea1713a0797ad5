//! Every form of `operator new` and `delete`, and what happens when memory is refused.

use spandrel_tests::Program;

#[test]
fn every_form_of_new_and_delete() {
    Program::new("operators.cc").run_in_all_modes();
}

#[test]
fn new_handlers_and_bad_alloc() {
    Program::new("new_handler.cc").run_in_all_modes();
}
