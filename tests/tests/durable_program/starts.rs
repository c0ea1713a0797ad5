//! Starts that are refused, and those behind a kill.

use super::*;

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let says = |more: &[&str], words: &str| {
        let mut server = Server::durable_with(place.path(), more);
        let done = server.running.take().unwrap().wait();
        assert!(done.code == Some(2) && done.err().contains(words), "{done}");
    };
    says(&["--cluster-enabled", "yes"], "remove cluster-enabled");
    says(&["--io-threads", "4"], "remove io-threads");
    says(&["--repl-diskless-load", "swapdb"], "remove repl-diskless-load swapdb");
    {
        let server = Server::durable_with(place.path(), &["--enable-module-command", "yes"]);
        let mut client = server.client();
        let said = client.call(&[
            "FUNCTION",
            "LOAD",
            "#!lua name=a\nredis.register_function('f', function() return 1 end)",
        ]);
        assert!(text(&said).contains("FUNCTION LOAD is not durable"), "{said:?}");
        assert!(client.text("MODULE LOAD /tmp/x.so").contains("Error loading the extension"));
        assert!(client.text("DEBUG RESTART").contains("failed to restart"));
        assert_eq!(client.text("MULTI"), "OK");
        assert!(client.text("FUNCTION RESTORE x").contains("QUEUED"));
        assert!(client.text("EXEC").contains("FUNCTION RESTORE is not durable"));
    }
    let run = |words: &[&str]| {
        Job::new(built("spandrel"))
            .args(["durable", "run", "--dir"])
            .arg(place.path().join("state"))
            .args(words)
            .run()
    };
    let sentinel = place.path().join("sentinel.conf");
    let socket = place.path().join("sentinel.sock");
    std::fs::write(&sentinel, format!("port 0\nunixsocket {}\n", socket.display())).unwrap();
    let done = run(&["--", "redis-server", &sentinel.display().to_string(), "--sentinel"]);
    assert!(
        done.code == Some(2) && done.err().contains("has not called loadDataFromDisk"),
        "{done}"
    );
    let mut server = Server::durable(place.path());
    server.client().line("SET a 1");
    // Another one with the same state.
    says(
        &["--unixsocket", &place.path().join("other.sock").display().to_string()],
        "a process has the state open",
    );
    server.kill();
    says(&["--databases", "4"], "the program has 8 as it was started");
    let done = run(&["--", "true"]);
    assert!(
        done.code == Some(2)
            && done.err().contains("there is no adapter for a program of that name"),
        "{done}"
    );
    let done = run(&["--adapter", "redis", "--", "redis-cli"]);
    assert!(done.code == Some(2) && done.err().contains("is for versions that say"), "{done}");
    let mut server = Server::durable(place.path());
    assert_eq!(server.client().text("GET a"), "1");
    server.kill();
}

/// Libraries of functions would be there until the next start: a server that would take them in ends with the reason, and the state is as it was.
#[test]
fn functions_among_the_data_are_refused() {
    const LIBRARY: &str = "#!lua name=a\nredis.register_function('f', function() return 1 end)";
    for appends in [false, true] {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let more = ["--appendonly", if appends { "yes" } else { "no" }];
        {
            let socket = place.path().join("plain.sock");
            let words = redis(place.path(), &socket);
            let job = Job::new(&words[0]).args(&words[1..]).args(more);
            let server = Server::of(job, socket);
            let mut client = server.client();
            client.call(&["FUNCTION", "LOAD", LIBRARY]);
            assert_eq!(client.integer("FCALL f 0"), 1);
            assert_eq!(client.text("SET a 1"), "OK");
            if !appends {
                assert_eq!(client.text("SAVE"), "OK");
            }
        }
        for _ in 0..2 {
            let mut server = Server::durable_with(place.path(), &more);
            let done = server.running.take().unwrap().wait();
            let words = "the program's own files cannot be taken in";
            assert!(done.code == Some(2) && done.err().contains(words), "{appends}: {done}");
        }
    }
}

/// A program with an allocator of its own would keep its data where the next process has none of them.
#[test]
fn a_program_with_another_allocator_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let known = include_str!("../../../crates/adapter/adapters/redis.toml");
    // In the place of the allocator a function that returns what is no object of the state.
    let other =
        known.replacen("allocate = \"zmalloc\"", "allocate = \"zmalloc_get_memory_size\"", 1);
    assert!(other != known);
    let adapter = place.path().join("other.toml");
    std::fs::write(&adapter, other).unwrap();
    let socket = place.path().join("socket");
    let job = Job::new(built("spandrel")).args(["durable", "run", "--dir"]);
    let job = job.arg(place.path().join("state")).arg("--adapter").arg(&adapter).arg("--");
    let done = job.args(redis(place.path(), &socket)).run();
    assert!(done.code == Some(2) && done.err().contains("make MALLOC=libc"), "{done}");
}

/// Without the library the program would acknowledge what is not durable.
#[test]
fn a_library_that_is_not_loaded_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("my library");
    std::fs::create_dir(&folder).unwrap();
    let run = |folder: &Path| {
        let job = Job::new(folder.join("spandrel")).args(["durable", "run", "--dir"]);
        job.arg(place.path().join("state")).args(["--", "redis-server", "--port", "0"]).run()
    };
    std::fs::copy(built("spandrel"), folder.join("spandrel")).unwrap();
    std::fs::copy(built("libspandrel_program.so"), folder.join("libspandrel_program.so")).unwrap();
    let done = run(&folder);
    assert!(done.code == Some(2) && done.err().contains("cannot be preloaded"), "{done}");
    let renamed = place.path().join("library");
    std::fs::rename(&folder, &renamed).unwrap();
    std::fs::write(renamed.join("libspandrel_program.so"), "no library").unwrap();
    let done = run(&renamed);
    assert!(done.code == Some(2) && done.err().contains("is not loaded into it"), "{done}");
    assert!(!place.path().join("state").exists());
}

/// A child that writes a file goes on when the server is killed, and does not keep the next one out.
#[test]
fn a_server_that_is_killed_while_a_child_of_it_saves_starts_again() {
    for place in places() {
        let mut server = Server::durable(place.path());
        let mut client = server.client();
        for number in 0..100 {
            client.line(&format!("SET key{number} 1"));
        }
        // A second for each key.
        client.line("CONFIG SET rdb-key-save-delay 1000000");
        client.line("BGSAVE");
        let pid = server.running.as_ref().unwrap().pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child: i32 =
            children.split_whitespace().next().expect("a child that saves").parse().unwrap();
        // SAFETY: a process that was started here.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        while !server.running.as_ref().unwrap().has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let next = Server::durable(place.path());
        assert_eq!(next.client().integer("DBSIZE"), 100);
        assert!(Path::new(&format!("/proc/{child}")).exists(), "the child still saves");
        // SAFETY: a child of such a process.
        unsafe { libc::kill(child, libc::SIGKILL) };
        server.running.take().unwrap().wait();
    }
}
