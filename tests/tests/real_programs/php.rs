//! PHP: its extensions are modules that are opened with `RTLD_DEEPBIND`.

use crate::compare::{account, loads_into, program_file, same_in_every_mode};

#[test]
fn php_with_extensions() {
    loads_into("php", &["-v"]);
    same_in_every_mode(|run| {
        let version = run.job("php").arg("-m").run();
        let job = run.job("php").arg(program_file("job.php")).run();
        // Without the engine's own heap all is the allocator's.
        let plain = run.job("php").arg(program_file("job.php")).env("USE_ZEND_ALLOC", "0").run();
        account(&version, 0) + &account(&job, 7) + &account(&plain, 7)
    });
}
