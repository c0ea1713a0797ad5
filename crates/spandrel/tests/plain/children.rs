//! Other processes: killed, started at other addresses, or without a system call.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use spandrel::durable::{Error, Plain, fix_addresses};

use crate::states::{open, options};

type Numbers = BTreeMap<u64, String>;

/// What a child does.
pub fn run(role: &str, arguments: &[String]) {
    let path = Path::new(&arguments[0]);
    match role {
        "open" => report(path),
        "fixed" => {
            fix_addresses().unwrap();
            report(path);
        }
        "write" => {
            fix_addresses().unwrap();
            write(path);
        }
        "abort" => {
            fix_addresses().unwrap();
            panic_half_way(path);
        }
        "variable" => {
            fix_addresses().unwrap();
            make_for_the_program(path);
        }
        "forbidden" => {
            fix_addresses().unwrap();
            forbid(libc::SYS_userfaultfd);
            // SAFETY: the call is refused.
            assert_eq!(unsafe { libc::syscall(libc::SYS_userfaultfd, 0) }, -1);
            crate::states::behave_as_the_model("/dev/shm", 2);
            crate::states::a_command_that_panics_is_undone();
            println!("well");
        }
        "kept" => stay(),
        "threads" => {
            fix_addresses().unwrap();
            crate::threads::run(path, &arguments[1]);
        }
        "history" => crate::histories::run(path, &arguments[1..]),
        _ => panic!("{role}"),
    }
}

/// Writes numbers beside another thread, until a command panics half-way. The hook ends the process where a build with `panic = "abort"` would: after the message, and before anything
/// unwinds.
fn panic_half_way(path: &Path) {
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let db = open(path, Numbers::new);
    let first = db.read(|all| all.range(..OTHERS).count() as u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let other = |all: &mut Numbers| {
                    let number = all.range(OTHERS..).count() as u64;
                    all.insert(OTHERS + number, format!("other {number}"));
                };
                db.write(other).unwrap();
            }
        });
        for number in first.. {
            db.write(|all| {
                all.insert(number, format!("number {number}"));
                if number == first + WHOLE {
                    // Nodes of the tree go.
                    all.retain(|at, _| at.is_multiple_of(2));
                    panic!("on purpose");
                }
            })
            .unwrap();
            println!("{number}");
        }
    });
}

/// Numbers that another thread writes, and how many come before the panic.
const OTHERS: u64 = 1 << 40;
const WHOLE: u64 = 50;

pub fn a_panic_that_aborts_leaves_the_state_of_the_batch_before() {
    for place in ["/tmp", "/dev/shm"] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().join("state");
        for round in 1..=3u64 {
            let done = child("abort", &path).stderr(Stdio::inherit()).output().unwrap();
            assert_eq!(done.status.signal(), Some(libc::SIGABRT));
            let said = String::from_utf8(done.stdout).unwrap();
            let last = format!("{}", round * WHOLE - 1);
            assert_eq!(said.lines().last(), Some(&*last), "{said}");
            let db = open(&path, Numbers::new);
            db.read(|all| {
                let whole =
                    (0..).map(|n| (n, format!("number {n}"))).take((round * WHOLE) as usize);
                let others = (0..).map(|n| (OTHERS + n, format!("other {n}")));
                let others = others.take(all.range(OTHERS..).count());
                assert!(all.clone().into_iter().eq(whole.chain(others)), "{all:?}");
            });
        }
    }
}

/// Says how many numbers the state has, or why it is refused.
fn report(path: &Path) {
    match Plain::open(path, options(), Numbers::new) {
        Ok(db) => println!("{}", db.read(BTreeMap::len)),
        Err(refused) => println!("{:?}", refused.why),
    }
}

/// Writes numbers until it is killed, and says each that is durable.
fn write(path: &Path) {
    let db = open(path, Numbers::new);
    let mut out = std::io::stdout();
    loop {
        let number = db
            .write(|all| {
                let number = all.len() as u64;
                all.insert(number, format!("number {number}"));
                // Half a command must not be seen.
                if number % 7 == 3 {
                    all.insert(u64::MAX, "half".into());
                    all.remove(&u64::MAX);
                }
                number
            })
            .unwrap();
        let _ = writeln!(out, "{number}");
    }
}

pub fn child(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("child={role}")).arg(path);
    command
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// A child whose addresses the kernel draws.
fn drawn(command: &mut Command) -> &mut Command {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::personality(0);
            Ok(())
        })
    }
}

fn made(path: &Path) {
    let db = open(path, Numbers::new);
    db.write(|all| all.insert(1, "one".into())).unwrap();
    db.close().unwrap();
}

pub fn other_addresses_are_refused() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    made(&path);
    assert_eq!(said(&mut child("open", &path)), "1");
    assert_eq!(said(drawn(&mut child("open", &path))), "Addresses");
    // It starts itself again.
    assert_eq!(said(drawn(&mut child("fixed", &path))), "1");
    assert_eq!(open(&path, Numbers::new).read(BTreeMap::len), 1);
}

pub fn another_build_is_refused() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    made(&path);
    let other = directory.path().join("other");
    let mut file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // Type 3 and the name: the build id follows.
    let note = b"\x03\0\0\0GNU\0";
    let at = file.windows(note.len()).position(|bytes| bytes == note).unwrap();
    file[at + note.len()] ^= 1;
    std::fs::write(&other, file).unwrap();
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = Command::new(&other);
    command.arg("child=fixed").arg(&path);
    assert_eq!(said(&mut command), "OtherBuild");
    assert_eq!(open(&path, Numbers::new).read(BTreeMap::len), 1);
}

pub fn kills_lose_nothing() {
    for place in ["/tmp", "/dev/shm"] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().join("state");
        let mut least = 0;
        for round in 0..12u64 {
            let mut writer = child("write", &path).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            // A new state takes its time.
            let first = lines.next().unwrap().unwrap();
            let pid = i32::try_from(writer.id()).unwrap();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(round * 17));
                // SAFETY: the child is not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            });
            for line in std::iter::once(Ok(first)).chain(lines) {
                // The last line may be cut.
                let Ok(number) = line.unwrap().parse::<u64>() else { continue };
                least = least.max(number + 1);
            }
            killer.join().unwrap();
            writer.wait().unwrap();
            let db = open(&path, Numbers::new);
            let len = db.read(|all| {
                assert!(
                    all.iter()
                        .zip(0..)
                        .all(|((at, text), n)| *at == n && *text == format!("number {n}"))
                );
                all.len() as u64
            });
            assert!(len >= least, "{len} of {least}");
        }
        assert!(least >= 12, "{least} writes in all");
    }
}

/// The process may not make a system call from now on, as in many containers.
fn forbid(number: libc::c_long) {
    let load = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = u32::try_from(number).unwrap();
    let mut is_it = load(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number);
    is_it.jf = 1;
    let mut filter = [
        load(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_it,
        load(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        load(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program is a local variable; the calls change what the process may do.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
    }
}

/// A process that cannot be started again, and asks for it.
fn stay() {
    forbid(libc::SYS_execve);
    let why = fix_addresses().unwrap_err();
    assert_eq!(why.kind(), std::io::ErrorKind::PermissionDenied);
    // SAFETY: reads a value of the process.
    let personality = unsafe { libc::personality(0xffff_ffff) };
    println!("{} {why}", personality & libc::ADDR_NO_RANDOMIZE);
    // Nor is a state opened that needs it.
    assert!(fix_addresses().is_err());
    let open = Plain::open("/dev/shm/never-made", options(), Numbers::new);
    assert!(matches!(open.unwrap_err().why, Error::Addresses));
}

pub fn a_process_that_is_not_started_again_is_as_it_was() {
    let said = said(drawn(&mut child("kept", Path::new("unused"))));
    assert!(said.starts_with("0 "), "{said}");
    assert!(said.contains("starting it again at fixed addresses"), "{said}");
    assert!(said.contains("allow execve"), "{said}");
}

pub fn it_works_without_userfaultfd() {
    // Translated commands do without it anyway.
    if crate::states::is_translated() {
        return;
    }
    assert_eq!(said(&mut child("forbidden", Path::new("unused"))), "well");
}

static FOR_ALL: LazyLock<Box<[u64; 100]>> = LazyLock::new(|| Box::new([7; 100]));

/// What a command makes for the whole program is undone with it.
fn make_for_the_program(path: &Path) {
    let db = open(path, Numbers::new);
    let panics = || {
        db.write(|all| {
            all.insert(FOR_ALL[3], "seven".into());
            panic!("on purpose");
        })
    };
    let outcome: Result<Result<(), Error>, _> = catch_unwind(AssertUnwindSafe(panics));
    assert!(outcome.is_err());
}

pub fn a_variable_that_leads_into_the_state_is_reported() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let output = child("variable", &directory.path().join("state")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a variable of the program, at 0x"), "{said}");
    assert!(said.contains("since a command was undone"), "{said}");
}

/// The copy of the state takes as much of the address space as the state.
pub fn a_limited_address_space_is_shared() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    for gigabytes in [100u64, 20, 2] {
        let path = directory.path().join("state");
        let mut command = child("fixed", &path);
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let limit = gigabytes << 30;
                libc::setrlimit(
                    libc::RLIMIT_AS,
                    &libc::rlimit { rlim_cur: limit, rlim_max: limit },
                );
                Ok(())
            });
        }
        assert_eq!(said(&mut command), "0", "{gigabytes} GiB");
    }
}
