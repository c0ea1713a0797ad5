/* spandrel_durable.h: a durable state of Spandrel, which lives in memory and survives failures.
 *
 * Link with -lspandrel_durable; malloc stays whatever it is. Commands that read run beside each other at the speed of memory. Commands that write
 * run one after the other, in batches; each returns when its effects are durable. docs/durable.md shows how a program uses it.
 *
 * The state lies at the same addresses in every process: pointers in it are plain addresses. They lead to objects of the state; a pointer to anything
 * else, as to a function or to a string of the program, leads nowhere in the next process, unless commands are translated. What the next process finds
 * hangs at a root.
 *
 * What a command stores in the state has to be captured, in one of four ways:
 *   - commands are translated (option `stores`): ordinary code in C and C++ changes the state, and no store is named. See "Translated commands" below;
 *   - the kernel names the pages that were written (option `stores`), and they are compared with a copy: dearer, and no store is named either. See "Stores by pages" below;
 *   - the command names it: spandrel_durable_store, _memset, or _wrote beside a store of its own. So do spandrel_durable_malloc, _calloc, _realloc,
 *     _free and the roots for what they change;
 *   - the compiler names it: code that is compiled with `-fsanitize=thread -fno-builtin -U_FORTIFY_SOURCE`, and linked with -lspandrel_durable and
 *     without the first flag. What other code stores in the state (system calls, most of the C library, the compiled part of libstdc++) is named by
 *     _wrote.
 *     Calls of memcpy, memmove, memset, strcpy, strncpy, strcat and strncat are captured in either way. Without -fno-builtin the compiler puts
 *     stores in the place of some calls, and these are not.
 * A store that is not captured is lost at the next failure, and may be lost when the state is closed.
 *
 * An address of the process's own memory in the state (an object of malloc, a part of a stack; where the kernel draws addresses, a function or a variable of the program or of a library)
 * is named on the standard error, in whichever way stores are captured: the first eight that are found at the ends of batches, in words that begin at multiples of 8. A number that looks like
 * such an address is named too, and what lies between the fields of a structure that is copied as a whole.
 *
 * Unless it says otherwise a function that returns int returns 0, or -1 with errno set, and one that returns a pointer NULL with errno set. Beside what
 * is said with each,
 *   EINVAL   a pointer is NULL that must not be; the state is another one than that of the command; struct_size of a structure is none (less than 8, or more than 4096),
 *   EPERM    the process is a child of the one that opened the state: the child cannot use it,
 *   EROFS    only a command that writes may call the function, and none runs in this thread,
 *   EDEADLK  a command must not call the function.
 * spandrel_durable_error_text has the reason in words and the way out.
 *
 * All threads may use a state at once, but for spandrel_durable_close. A process may have several states open, 64 at most;
 * of those with translated commands some thirty, as memory for code within 2 GiB of the libraries' own ends (ENOMEM). A thread that calls these
 * functions has a stack of 128 KiB and what the deepest command of any thread needs; of 256 KiB to close a state, 512 KiB to copy one, 1 MiB to open one. It is not
 * cancelled meanwhile. A handler of a signal that calls one while its thread is within a call gets EDEADLK.
 *
 * The descriptors of a state are the library's until it is closed. A program that closes all descriptors that it does not know (closefrom, daemons) does so before it opens a state:
 * what cannot be written then is refused (EBADF, ESTALE), and on a file system in memory, where nothing is written by a descriptor, only the lock of the directory is gone.
 *
 * libspandrel_durable.so is linked with the program. To load it later (dlopen, a module of an interpreter) glibc needs room for its variables of threads:
 * GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536 in the environment.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_DURABLE_H
#define SPANDREL_DURABLE_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPANDREL_DURABLE_HOOKS
#endif
#elif defined(__SANITIZE_THREAD__)
#define SPANDREL_DURABLE_HOOKS
#endif
#if defined(SPANDREL_DURABLE_HOOKS) && defined(__OPTIMIZE__) && defined(_FORTIFY_SOURCE) && _FORTIFY_SOURCE > 0
#error "fortified functions store without a call, and what they store is lost: compile with -U_FORTIFY_SOURCE"
#endif
#undef SPANDREL_DURABLE_HOOKS

#ifndef __cplusplus
#include <stdbool.h>
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open state. */
typedef struct spandrel_durable spandrel_durable;

/* A command: it gets the state and the caller's argument. What it returns, 0 or more, is returned to its caller. A negative number refuses: all that
 * the command has changed in the state is undone, and its caller gets -1 with ECANCELED. To undo costs a write of the log into the state's file.
 *
 * A command that writes
 *   - may run in another thread than that of its caller, together with commands of others: it must not wait for another command, or for its thread,
 *   - may run more than once: if another command of its batch is undone, all are, and run again. So it changes nothing but the state, and its result
 *     through the argument, which the last run decides,
 *   - begins no other command of any state.
 * A command that reads changes nothing in the state.
 *
 * A command ends by returning. A C++ exception that leaves it ends the process, and the next process finds the state of
 * the last batch. After longjmp out of a command the state is not used any more: the thread's next call of these functions ends the process or fails
 * (EDEADLK), calls of other threads wait, and nothing of the command is ever durable. */
typedef int (*spandrel_durable_command)(spandrel_durable *state, void *argument);

/* How a state is made or opened. Set struct_size to sizeof the structure and all else to 0, then what you mean: fields may be added,
 * and 0 selects the default. EINVAL if a field is set that the library does not know. */
typedef struct spandrel_durable_options {
    size_t struct_size;
    size_t limit;      /* bytes that the state may have at most, for which address space is set aside: 64 GiB */
    uint64_t log_size; /* bytes of the log; 0: 64 MiB for a new one, which becomes longer where commands fill it soon. For a command that changes more than the log holds it becomes longer in any case */
    uint64_t layout;   /* number of the program's layout of objects: a state made with another is refused; 0: any */
    size_t block_size; /* bytes of the blocks in which stores are noted: 16, 32, 64 or 128; 32 */
    size_t clients;    /* threads that run commands at a time; others wait. At most 1024; 256 */
    int stores;        /* how the stores of commands are captured: one of those below */
} spandrel_durable_options;

#define SPANDREL_DURABLE_STORES_NAMED 0      /* the program or the compiler names them */
#define SPANDREL_DURABLE_STORES_TRANSLATED 1 /* commands are translated */
#define SPANDREL_DURABLE_STORES_VERIFIED 2   /* the same, and the state is compared with a copy: for tests */
#define SPANDREL_DURABLE_STORES_PAGES 3      /* the pages that a batch has written are compared with a copy */

/* Stores by pages. The kernel names the pages that a batch has written (userfaultfd's asynchronous write protection, Linux 6.7), and a comparison with a copy finds the
 * blocks that differ. No store is named, by whatever code it is made: assembly, system calls, libraries, code that is made at run time, other threads that store for a command
 * before it returns. Commands run as they are, at any addresses.
 *   - It takes the state's memory twice. A batch takes some 20 us and more, the longer the larger the state is: each page that it writes is a page fault and
 *     a comparison of 4 KiB. Where the kernel forbids userfaultfd (Docker's default profile), or is older, a batch compares every page that was ever written.
 *   - Allocations are those of spandrel_durable_malloc and its like. malloc within a command is the process's.
 *   - What it misses: a store into a page that was pinned before by an asynchronous system call (io_uring, AIO) and that ends after the command; a store that is not
 *     made when the command returns, as of a thread that goes on.
 *   - A store outside of commands is not found by itself. It becomes durable with the next batch that writes the same page, or is undone with it.
 *   - Pointers to the program lead nowhere in the next process, as with named stores. */

/* Translated commands. The machine code of a command that writes, and of all that it calls, is translated as it runs for the first time, and the translation
 * notes each store to the state: that of std::map and std::string, of virtual functions, of zlib or SQLite. Exceptions and longjmp within the command
 * work. Commands that read, and all that is no command, run as they are. For x86-64.
 *
 * Within a command that writes, also in `init`, malloc, calloc, realloc, free and its like, operator new and operator delete, called by the program or by any
 * library, allocate in the state and free there. Objects of the process stay the process's: free and realloc know either kind. So
 *   - what the state leads to is allocated by commands that write, and freed by them. Outside of them the program's own free gets the object, which is no
 *     object of its own, and ends the process. What a command returns through its argument is no object that it has allocated, but a number, or bytes in a
 *     buffer of the caller; a command that reads may return objects, as those are the process's;
 *   - a command frees no object of the process but those that it has itself allocated there: it may run more than once;
 *   - what the C library and the C++ library keep for themselves (buffers of files, tables of locales and conversions, users and hosts, libraries that are loaded) is the
 *     process's anyway; what the C library allocates for its caller to free (strdup, asprintf, getline, regcomp, tsearch) is the state's;
 *   - what a command makes for the whole program, by the way (a static variable of a function, a cache of another library), is made before, or by
 *     spandrel_durable_outside;
 *   - the command's own thread makes all changes. What other threads store for it is found at the end of its batch if it has begun, woken or awaited them, and a
 *     second or more later if not; a handler of a signal stores nothing in the state. A std::thread that a command begins frees what lies in the state: a command
 *     begins it by spandrel_durable_outside.
 *
 * Values of C++ and of libraries lead to code and constants of the program (tables of virtual functions, callbacks). So the program and its libraries lie at the
 * same addresses each time, and are the same builds, which opening checks: spandrel_durable_fix_addresses in the first line of main, or `setarch -R`. With
 * -no-pie alone the program does, and libraries do not: the state then leads into the program at most. Libraries are loaded before the state is opened.
 *
 * A command ends the process, with a line on the standard error that says why, where it does what cannot be captured: code that was made at run time, a stack
 * that lies in the state, a system call of which it is not known what it writes, an exception that leaves it. Nothing of that command is durable.
 *
 * STORES_VERIFIED compares the changed pages with a copy after each batch: a line on the standard error names the first place that was changed and not
 * noted, and spandrel_durable_figures counts both. The state takes its memory twice. */

/* Has the program and its libraries lie at the same addresses each time: where the kernel draws them, the program is started again, with the same arguments
 * and environment. For the first line of main: what was done before is done again. -1, with errno: the kernel refuses (in a container: its seccomp profile
 * forbids personality(ADDR_NO_RANDOMIZE)), the program has more rights than its caller, or it cannot be started again. */
int spandrel_durable_fix_addresses(void);

/* Calls a function, which neither an exception nor longjmp leaves, and returns what it returns. Within a translated command, what it allocates is the process's. Outside of
 * commands this is a plain call. */
int spandrel_durable_outside(int (*function)(void *argument), void *argument);

/* Opens the state of a directory, which is made if there is none, for its owner alone, and recovered if the program was killed: the state is that of
 * the last command that has returned, or of a later one. NULL selects the default options.
 *
 * `init` is called each time before this function returns, as a command that writes and that runs alone; NULL: nothing is. It finds its objects at the roots,
 * and makes those that are not there. If it refuses, the state is not opened (ECANCELED), and nothing has changed.
 *   EWOULDBLOCK  a process has the state open, or this one has,
 *   EACCES       the directory or a file in it belongs to another user, or other users may write to it; or it cannot be made or read,
 *   ENOTDIR      it is no directory, or a symbolic link,
 *   ENOENT       the directory above it does not exist,
 *   EINVAL       the file `state` is none; a wrong option,
 *   EBADMSG      the state or its log is damaged, missing, of another state, or no log: the text says which, and nothing was changed,
 *   EADDRINUSE   something else lies at the state's addresses; or the limit is more than all states have (16 TiB),
 *   EPROTOTYPE   it was made for another layout; or by translated commands, with another build of the program or of a library, or at other addresses,
 *   ENOTSUP      it was made by another version; or commands are to be translated and the program's addresses are drawn, or the system forbids memory with
 *                code,
 *   ENAMETOOLONG, EMFILE, ENOSPC, ENOMEM, and any number that the system has for a file that cannot be used. */
spandrel_durable *spandrel_durable_open(const char *directory, const spandrel_durable_options *options, spandrel_durable_command init,
                                        void *context);

/* Closes a state: its file has all of it, and the log is not needed. -1: it has to be recovered, as if the process had been killed here. There is
 * no such state any more in either case, but for EDEADLK, EPERM and EINVAL. One that is not closed when the process ends is recovered. */
int spandrel_durable_close(spandrel_durable *state);

/* Runs a command that reads, beside others that do. What it sees is durable. Returns what the command returned, or -1. ECANCELED: it returned a
 * negative number. */
int spandrel_durable_read(spandrel_durable *state, spandrel_durable_command command, void *argument);

/* Runs a command that writes. When this returns what the command returned, its effects survive any failure that the medium survives.
 *   ECANCELED  the command returned a negative number, and was undone,
 *   EMSGSIZE   it changes more than the longest log holds (16 GiB), or than this one, which has no room to become longer. It was undone, and others go on,
 *   EIO, ...   the disk refused: the effects are durable or not, and no later command that writes is accepted; reads go on. What has returned is
 *              durable. Open the state again,
 *   ENOSPC     the same; or the log is full, and the state's file cannot become longer: what was refused is not there,
 *   EUCLEAN    no command that writes is accepted: something has stored to the state outside of one, a batch could not be undone, or a fault of the
 *              library has ended its thread and the log is full. Open the state again: it is that of the last command that has returned. */
int spandrel_durable_write(spandrel_durable *state, spandrel_durable_command command, void *argument);

/* Copies a state to another directory, which is made if it is missing, while all threads go on. The copy has what was durable when this was called, and
 * batches up to a later one. It is a state like any other, and survives a loss of power when this returns. It lies at the same addresses: a process has one
 * of both open at a time. After a failure there is no copy.
 *   EEXIST              the directory has a state or a log already,
 *   ENOTDIR, EACCES     as for spandrel_durable_open,
 *   ENOSPC, EFBIG, ...  the disk of the copy refused. */
int spandrel_durable_copy(spandrel_durable *state, const char *directory);

/* As malloc and its like, aligned to 16, for commands that write. An object stays until it is freed, whether or not anything leads to it.
 *   ENOMEM   the limit of the state is reached, or there is no memory,
 *   EINVAL   more than any state has; an alignment that is no power of two or more than 64 KiB,
 *   EFAULT   (realloc) it is no object of this state. */
void *spandrel_durable_malloc(spandrel_durable *state, size_t size);
void *spandrel_durable_calloc(spandrel_durable *state, size_t count, size_t size);
void *spandrel_durable_aligned_alloc(spandrel_durable *state, size_t alignment, size_t size);

/* NULL is allocated; resized to 0 bytes an object is freed and NULL returned. After a failure the object is as it was. */
void *spandrel_durable_realloc(spandrel_durable *state, void *object, size_t size);

/* Frees an object; NULL is nothing. EFAULT: it is no object of this state, or free already. */
int spandrel_durable_free(spandrel_durable *state, void *object);

/* Bytes that an object has room for, for any command; 0 for NULL, and with EFAULT for what is no object. */
size_t spandrel_durable_usable_size(spandrel_durable *state, const void *object);

/* The object that a root leads to. NULL: there is no root of that name, or it leads to nothing. Outside of a command the function is a command of its own,
 * which reads; another command may free the object then. EINVAL: a name has 1 to 40 bytes of UTF-8. */
void *spandrel_durable_root(spandrel_durable *state, const char *name);

/* Has a root lead to an object, or to nothing (NULL), for commands that write. There are 512 names.
 *   EINVAL  a name has 1 to 40 bytes of UTF-8,
 *   EFAULT  it is no object of this state,
 *   ENOSPC  all names are used. */
int spandrel_durable_set_root(spandrel_durable *state, const char *name, void *object);

/* Takes a root away and its name, for commands that write. EINVAL: there is none. */
int spandrel_durable_remove_root(spandrel_durable *state, const char *name);

/* The command has stored to these bytes, or is about to: they are captured as they are when the batch ends. For commands that write.
 * EFAULT: not all of them lie in the state. */
int spandrel_durable_wrote(spandrel_durable *state, const void *address, size_t bytes);

/* Captured memmove and memset, for commands that write. EFAULT: not all of the bytes at `to` lie in the state, and none was changed. */
int spandrel_durable_store(spandrel_durable *state, void *to, const void *from, size_t bytes);
int spandrel_durable_memset(spandrel_durable *state, void *to, int value, size_t bytes);

/* What opening has found. Set struct_size. */
typedef struct spandrel_durable_report {
    size_t struct_size;
    int created;       /* 1: the state is new */
    int was_closed;    /* 1: the state had been closed, or is new. 0: the program was killed, or the machine failed */
    uint64_t replayed; /* batches that only the log had */
} spandrel_durable_report;
int spandrel_durable_get_report(const spandrel_durable *state, spandrel_durable_report *report);

/* What was made durable since the state was opened. Set struct_size. Not for commands. */
typedef struct spandrel_durable_figures {
    size_t struct_size;
    uint64_t batches; /* batches that have changed something */
    uint64_t runs;    /* runs of bytes that they have stored */
    uint64_t bytes;   /* bytes of these */
    uint64_t changed; /* SPANDREL_DURABLE_STORES_VERIFIED: bytes that batches have changed, in whole blocks; else 0 */
    uint64_t missed;  /* those of them that were not noted */
} spandrel_durable_figures;
int spandrel_durable_get_figures(const spandrel_durable *state, spandrel_durable_figures *figures);

/* How a batch becomes durable, in words. The text stays as long as the state is open. */
const char *spandrel_durable_medium(const spandrel_durable *state);

/* Where the state begins, in every process, and how many bytes it has. */
void *spandrel_durable_base(const spandrel_durable *state);
size_t spandrel_durable_bytes(const spandrel_durable *state);

/* The text of the last of these functions that failed on this thread, without a full stop; "" before any. It has the directory where a state was to be
 * opened, the reason in words, and the way out behind a semicolon. The text stays until the thread calls one of these functions again. */
const char *spandrel_durable_error_text(void);

/* The library's version: "0.1.0". */
const char *spandrel_durable_version(void);

/* Programs whose own memory is the state, of which they have one. mangosteen.h has this by the names of the Mangosteen paper, and does what is said of
 * the loader here.
 *
 * The stores of such a program are named by the compiler's hooks, and its own objects are linked with
 *   -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=strdup,--wrap=strndup
 * so that their allocations lie in the state, in two cases: in a command that writes, and in the main thread from load until spandrel_durable_start
 * if the state is new. Stores count there as well, and in the main thread only: what another thread stores to the state by then is found (EUCLEAN). Until spandrel_durable_start
 * that thread opens no other state of a new one (EDEADLK). Objects of C++ (operator new) are the process's. Other allocations, and those of libraries, are the C library's. An object of the state that is freed outside of a command that writes is
 * freed by the next one; realloc refuses it there (ENOMEM).
 *
 * What must hold:
 *   - SPANDREL_DURABLE_DIR is the directory of the state,
 *   - the program that opens the state again has the same durable variables in the same order (EPROTOTYPE). The linker has the order of a section, and
 *     another level of optimisation may turn it round; one structure has the same order in each build,
 *   - neither the state nor a durable variable has a pointer to anything but the state: not to functions, constants or other variables of the program,
 *     which lie elsewhere in the next process, unless the program is linked with -no-pie and is the same file.
 * What a recovered program allocates before spandrel_durable_start is not the state's; its durable variables have the values of the state afterwards. */

/* A variable that is durable: its section is named by the loader. */
#define SPANDREL_DURABLE __attribute__((section("spandrel_durable")))

/* Names variables that are durable, before spandrel_durable_start (EINVAL afterwards, and for bytes that no process has). A command has the values that the last one has left; other code must not change them. */
int spandrel_durable_variable(void *address, size_t bytes);

/* Recovers the state; what the loader calls before main. Always 0. */
int spandrel_durable_load(void);

/* A response, which the program allocates and the library frees with the C library's free; the bytes are the program's, and stay up to the client's next
 * request. They are copied outside of commands: what another command may change is copied by the command that answers. */
typedef struct spandrel_durable_response {
    void *response;
    size_t size;
} spandrel_durable_response;

/* The program's functions for requests of clients, which it knows by addresses. Set struct_size. The first two are needed: whether the client's
 * request reads only, and how it is processed, with the result in the client; both as spandrel_durable_command has it. The others are for a server:
 * init_client and frame are needed there, the others may be NULL. Workers call them outside of commands: only process looks at the state, which others may be changing. Workers
 * have stacks of 2 MiB. `params` stays during the call. EINVAL if a field is set that the library does not know. */
typedef struct spandrel_durable_callbacks {
    size_t struct_size;
    bool (*is_read_only)(void *client);
    void (*process)(void *client);
    void *(*init_client)(void *params);                   /* a client; params leads to an int, its number. NULL: the connection is closed */
    void (*destroy_client)(void *client);                 /* its connection has ended */
    void (*deserialize)(void *client, void *request);     /* the request is aligned to 16, and stays until the response was taken */
    spandrel_durable_response *(*response)(void *client); /* NULL: none is sent */
    size_t (*frame)(const void *bytes, size_t length);    /* the length of the first request of these bytes, which need not be aligned; 0: it has not come whole; SIZE_MAX: it is none,
                                                             and the connection is closed. At most 16 MiB */
} spandrel_durable_callbacks;

/* Opens the state for commands, in the thread that runs main. Fails as spandrel_durable_open does. The state stays open until the process ends. */
int spandrel_durable_start(const spandrel_durable_callbacks *callbacks);

/* Processes the request of a client. When this returns 0 its effects survive. Only commands of this function change durable variables. Fails as spandrel_durable_read and _write do. */
int spandrel_durable_command_of(void *client);

/* Serves clients at a Unix socket of that path, which only the user may connect to, with an event loop in each of `workers` threads, the calling one
 * among them. Returns only if it fails, with -1. Of the descriptors that the process may have 16 are kept for the state.
 *   EADDRINUSE            a process listens there, or the path is no socket: what lies there stays,
 *   ENAMETOOLONG, ENOENT  the path has more than 107 bytes, or none; or its directory does not exist,
 *   EACCES                the user may not make a file there,
 *   EMFILE, EAGAIN        there is no descriptor, or no thread,
 *   EINVAL                the state was not started, or a function is missing. */
int spandrel_durable_serve(const char *socket, unsigned int workers);

/* The program's state, for the functions above but spandrel_durable_close (EINVAL). NULL: it was not started. */
spandrel_durable *spandrel_durable_default(void);

#ifdef __cplusplus
}
#endif

#endif
