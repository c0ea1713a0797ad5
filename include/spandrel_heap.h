/* spandrel_heap.h: the recoverable heap of Spandrel, in which objects outlive the process.
 *
 * Link with -lspandrel_heap; malloc stays whatever it is. A heap lies in a file. What can be reached from its roots is
 * there again when it is opened the next time, also after the process was killed; all else is free then.
 * docs/recoverable-heap-c.md shows how a program uses it.
 *
 * Unless it says otherwise a function that returns int returns 0, or -1 with errno set, and one that returns a pointer NULL with
 * errno set. Beside what is said with each,
 *   EINVAL   the heap is NULL,
 *   EPERM    the process is a child of the one that opened the heap: the child cannot use it,
 * where a function needs more of the file or of memory,
 *   ENOSPC   the disk or the user's quota is full: make room on it,
 *   EFBIG    the file would exceed a limit: `ulimit -f`, or one of the file system,
 *   ENOMEM   the heap's own limit is reached (`limit` below), or there is no memory or address space (`ulimit -v`): the text says which,
 * and any number that the system has for a file that cannot be used. spandrel_heap_error_text has the path, the reason in words and the
 * way out.
 *
 * A heap may be used by all threads at once, but for spandrel_heap_collect, _set_trace, _set_types and _close. 64 heaps may be open.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_HEAP_H
#define SPANDREL_HEAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open heap. */
typedef struct spandrel_heap spandrel_heap;

/* Roots are numbered from 0. */
enum { SPANDREL_HEAP_ROOTS = 512 };

/* What a heap lies on. The file remembers what it was made with; another one holds as long as the heap is open, and loses nothing. */
enum {
    SPANDREL_HEAP_AUTO = 0,   /* what the file remembers; else mapped on persistent memory (DAX) and on tmpfs, elsewhere logged */
    SPANDREL_HEAP_MAPPED = 1, /* stores are the file's: they survive the process, and power only on persistent memory */
    SPANDREL_HEAP_LOGGED = 2  /* the file changes from checkpoint to checkpoint: that survives power; PATH.wal is used */
};

/* Names the pointers of an object, by the functions below. It may be called for any object that is large enough, whatever it
 * holds, and by several threads at once; it changes nothing, and uses no heap. */
typedef struct spandrel_heap_tracer spandrel_heap_tracer;
typedef void (*spandrel_heap_trace)(const void *object, spandrel_heap_tracer *tracer);

/* Of what type the object is that a root leads to: its size, and what names its pointers; NULL: it has none. */
typedef struct spandrel_heap_root_type {
    unsigned int index; /* the root of that number, which has no name; nothing if there is a name below */
    spandrel_heap_trace trace;
    size_t bytes;     /* not 0 */
    const char *name; /* the root of that name, which is copied; NULL: that of the number */
    uint64_t layout;  /* of a named root: the program's number of the type. A root that was named with another is refused
                       * (EPROTOTYPE); 0: that of named roots without a type */
} spandrel_heap_root_type;

/* How a heap is made or opened. Set struct_size to sizeof the structure and all else to 0, then what you mean: fields may be added,
 * and 0 selects the default. EINVAL if a field is set that the library does not know. */
typedef struct spandrel_heap_options {
    size_t struct_size;
    size_t size;     /* bytes that it is made with: 64 MiB; it grows */
    size_t limit;    /* bytes that it may have at most, for which address space is set aside: 256 GiB, and less where there is less
                      * (`ulimit -v`) or another fixed heap lies near */
    uint64_t layout; /* number of the program's layout of objects: a heap made with another is refused; 0: any */
    int fixed;       /* not 0: it is made for one address, at which it is opened ever after: addresses may be stored in it */
    int medium;      /* one of the above */
    const spandrel_heap_root_type *types; /* types of roots; of others every word is looked at. EINVAL: no such root, or a wrong name */
    size_t type_count;
    int read_only; /* not 0: a copy in memory of the last checkpoint is opened, and what would change it is refused (EROFS). Another process
                    * may have the heap open. Neither the file nor its directory need be writable, with one exception: if another process has
                    * the heap open and mapped, the copy is requested through the file, which takes the right to write to it */
    int sums;      /* 1: a logged heap has a sum of each of its pages in PATH.sum, for `spandrel heap check` and spandrel_heap_verify_sums; it
                    * keeps them up at later openings also with 0. -1: the file is removed. ENOTSUP: the heap is mapped; EBADMSG: PATH.sum
                    * is another file */
} spandrel_heap_options;

/* What a collection has found. Set struct_size. */
typedef struct spandrel_heap_collected {
    size_t struct_size;
    uint64_t live;         /* objects that can be reached */
    uint64_t live_bytes;
    uint64_t freed_blocks; /* blocks of 64 KiB that became free */
    uint64_t freed;        /* objects that became free */
    uint64_t cleared;      /* pointers that led nowhere and were cleared, in objects of known types */
} spandrel_heap_collected;

/* Makes a heap in a new file. NULL selects the defaults.
 *   EEXIST        there is such a file, or such a log: the text says which,
 *   EINVAL        fewer than 704 KiB; a wrong option,
 *   ENAMETOOLONG  the name or the path leaves no room for that of the log: 251 bytes on most file systems,
 *   EADDRINUSE    it is to be fixed, and no addresses are free that are as many as its limit,
 *   ENOTSUP       a file on that file system cannot be a heap (hugetlbfs),
 *   EMFILE        64 heaps are open, or as many files as the process may have (`ulimit -n`),
 *   ENOSPC, EFBIG, ENOMEM as above. */
spandrel_heap *spandrel_heap_start(const char *path, const spandrel_heap_options *options);

/* Opens a heap that was closed.
 *   EUCLEAN      it was not closed: spandrel_heap_open, or spandrel_heap_start_off,
 *   ENOENT       there is none,
 *   EINVAL       the file is no heap, or one whose making was cut off,
 *   EWOULDBLOCK  a process has it open, which the text names,
 *   EADDRINUSE   it is fixed, and something else lies at its address,
 *   EPROTOTYPE   it was made for another layout,
 *   ENOTSUP      it was made by another version,
 *   EBADMSG      it is damaged; or its log (PATH.wal) is missing, damaged, of another heap or another state of this one, or no log: the
 *                text says which, and nothing was changed,
 *   EOPNOTSUPP   it is to be mapped, on a file system that copies what is written: a full disk would end the program by a signal,
 *   ENAMETOOLONG, ENOMEM, EMFILE as above. */
spandrel_heap *spandrel_heap_restart(const char *path, const spandrel_heap_options *options);

/* Opens a heap, closed or not, and recovers nothing: if it was not closed, nothing can be allocated or freed (EUCLEAN) before
 * spandrel_heap_collect. Fails as spandrel_heap_restart does, but for EUCLEAN. */
spandrel_heap *spandrel_heap_start_off(const char *path, const spandrel_heap_options *options);

/* Opens a heap, and recovers it if it was not closed: what cannot be reached from its roots is free then. Fails as
 * spandrel_heap_restart does, but for EUCLEAN. */
spandrel_heap *spandrel_heap_open(const char *path, const spandrel_heap_options *options);

/* Opens a heap as spandrel_heap_open does, and makes it if there is none: what most programs call. Of several processes that begin at once
 * one makes it. Fails as spandrel_heap_open and spandrel_heap_start do. The second function returns 1 if the call that returned the heap
 * has made it, else 0. */
spandrel_heap *spandrel_heap_open_or_create(const char *path, const spandrel_heap_options *options);
int spandrel_heap_is_new(const spandrel_heap *heap);

/* Frees what cannot be reached from the roots. No other thread uses the heap meanwhile, and no object is needed that only
 * pointers outside the heap lead to. `result` may be NULL. ENOMEM; EBADMSG: the heap is damaged. */
int spandrel_heap_collect(spandrel_heap *heap, spandrel_heap_collected *result);

/* Sets the type of a root, in the place of what the options said, for the next spandrel_heap_collect. No other thread uses the heap
 * meanwhile. The second sets several, all or none of them, named ones too.
 *   EINVAL      there is no such root, or `bytes` is 0,
 *   EPROTOTYPE  the heap has the root of that name with another layout. */
int spandrel_heap_set_trace(spandrel_heap *heap, unsigned int index, spandrel_heap_trace trace, size_t bytes);
int spandrel_heap_set_types(spandrel_heap *heap, const spandrel_heap_root_type *types, size_t count);

/* What a spandrel_heap_trace calls: there is, at `slot`, a word of spandrel_heap_offset that leads to a value of `bytes` bytes, of
 * which `trace` names the pointers, or NULL, which says that it has none; and the same for `count` values, one behind the other, or as
 * many as there is room for. A word that leads to no object which is large enough is cleared. In a fixed heap there may be an
 * address instead: what that leads to, and all behind it, is looked at word by word. `slot` is at a multiple of 8. Pointers to one
 * object name the same `trace`: the first that is met is called. They may name different counts: the largest counts, and
 * `trace` may be called more than once for a value, by two threads at the same time. */
void spandrel_heap_trace_pointer(spandrel_heap_tracer *tracer, const void *slot, spandrel_heap_trace trace, size_t bytes);
void spandrel_heap_trace_array(spandrel_heap_tracer *tracer, const void *slot, spandrel_heap_trace trace, size_t bytes,
                               size_t count);

/* There are bytes of which it is not known whether they are pointers: every word of them is looked at. */
void spandrel_heap_trace_words(spandrel_heap_tracer *tracer, const void *address, size_t length);

/* What became of a heap when it was opened: 0, it had been closed, or is new; 1, it was recovered, and `result`, which
 * may be NULL, has what that found; -1 with EUCLEAN, it is to be collected first. */
int spandrel_heap_recovered(const spandrel_heap *heap, spandrel_heap_collected *result);

/* Closes a heap, so that it need not be recovered. -1: it has to be recovered, as if the process had been killed here. There is no
 * such heap any more in either case; closed by a child of the process that opened it (EPERM) it stays open there. One that
 * is not closed when the process ends has to be recovered. */
int spandrel_heap_close(spandrel_heap *heap);

/* As malloc and its like, aligned to 16. An object stays after a failure if it can be reached then: have it written
 * back (spandrel_heap_persist) before a pointer leads to it. Pointers that are found without a declared type:
 *   - in a fixed heap, addresses of objects, and of their insides,
 *   - in every heap, words of spandrel_heap_offset,
 * in words of 8 bytes that lie at a multiple of 8 in an object. malloc of 0 bytes has an object of its own.
 *   ENOMEM   the limit of the heap is reached, or there is no memory,
 *   ENOSPC, EFBIG: the file cannot become longer,
 *   EINVAL   more than any heap has; an alignment that is no power of two or more than 64 KiB,
 *   EUCLEAN  the heap has to be collected first,
 *   EFAULT   (realloc) it is no object of this heap. */
void *spandrel_heap_malloc(spandrel_heap *heap, size_t size);
void *spandrel_heap_calloc(spandrel_heap *heap, size_t count, size_t size);
void *spandrel_heap_aligned_alloc(spandrel_heap *heap, size_t alignment, size_t size);

/* NULL is allocated; resized to 0 bytes an object is freed and NULL returned. After a failure the object is as it was. A
 * new object is not written back. */
void *spandrel_heap_realloc(spandrel_heap *heap, void *object, size_t size);

/* Frees an object; NULL is nothing. Whatever led to it must durably do so no more, as an object that was freed may hold anything
 * after a failure.
 *   EFAULT   it is no object of this heap, or free already, as far as the heap knows,
 *   EUCLEAN  the heap has to be collected first. */
int spandrel_heap_free(spandrel_heap *heap, void *object);

/* Bytes that an object has room for; 0 for NULL, and with EFAULT for what is no object. */
size_t spandrel_heap_usable_size(spandrel_heap *heap, const void *object);

/* From now on spandrel_heap_free calls `callback` instead of freeing, in whichever thread it is called, with the object and
 * `argument`; spandrel_heap_safe_free frees it when that is safe. So does spandrel_heap_realloc with what it has copied from.
 * NULL: no more. For libraries of failure-atomic sections or transactions, which must not free before they have committed. */
typedef void (*spandrel_heap_free_cb)(void *object, void *argument);
int spandrel_heap_set_free_cb(spandrel_heap *heap, spandrel_heap_free_cb callback, void *argument);

/* Frees an object, whether or not there is a callback. Fails as spandrel_heap_free does. */
int spandrel_heap_safe_free(spandrel_heap *heap, void *object);

/* Sets a root to an object, or NULL: durable when it returns; on a logged heap with the next checkpoint, as all else.
 *   EINVAL   there is no such root,
 *   EFAULT   it is no object of this heap. */
int spandrel_heap_set_root(spandrel_heap *heap, unsigned int index, void *object);

/* What a root was set to. NULL also if there is no such root, with EINVAL. */
void *spandrel_heap_get_root(const spandrel_heap *heap, unsigned int index);

/* A root and the object that it is set to, or NULL. Set all to 0, then what you mean. */
typedef struct spandrel_heap_root {
    const char *name;   /* the root of that name; an unused one gets it if there is none. NULL: that of the number */
    unsigned int index;
    void *object;
} spandrel_heap_root;

/* Sets several roots, 63 at most: after any failure all of them are set or none. Fails as spandrel_heap_set_root and
 * spandrel_heap_named_root do; no root is set then, but unused roots may have got names. */
int spandrel_heap_set_roots(spandrel_heap *heap, const spandrel_heap_root *roots, size_t count);

/* The number of the root of that name, for the functions of numbers; an unused root gets the name if there is none, and the layout that
 * was said with its type.
 *   EINVAL      a name has 1 to 40 bytes of UTF-8,
 *   EPROTOTYPE  the root leads to a type of another layout, or to one of a Rust program,
 *   ENOSPC      all roots are used. */
int spandrel_heap_named_root(spandrel_heap *heap, const char *name);

/* Takes a root away and its name. EINVAL: there is none. */
int spandrel_heap_remove_root(spandrel_heap *heap, const char *name);

/* Writes the name of a root to `name`, which has room for `size` bytes: 41 are enough. Returns its length, 0 if it has
 * none, or -1 with EINVAL if there is no such root. */
int spandrel_heap_root_name(const spandrel_heap *heap, unsigned int index, char *name, size_t size);

/* The word for an address in the heap, by which it is found wherever the heap is mapped the next time: what to store in a heap that
 * is not fixed. 0 for NULL, and with EFAULT for what lies elsewhere. */
uint64_t spandrel_heap_offset(const spandrel_heap *heap, const void *address);

/* Where such a word leads to. NULL for 0, and with EFAULT for what is no such word, or leads out of the heap. */
void *spandrel_heap_at(const spandrel_heap *heap, uint64_t word);

/* Where the heap begins in this process, and how many bytes it has. */
void *spandrel_heap_base(const spandrel_heap *heap);
size_t spandrel_heap_bytes(const spandrel_heap *heap);

/* What stores to a heap survive. */
enum {
    SPANDREL_HEAP_SURVIVES_PROCESS = 1, /* the end of the process, in the order of the stores */
    SPANDREL_HEAP_SURVIVES_FILE = 2,    /* also a loss of power: what a checkpoint has made durable, nothing else */
    SPANDREL_HEAP_SURVIVES_DAX = 3      /* also a loss of power: what was persisted */
};
int spandrel_heap_guarantee(const spandrel_heap *heap);

/* Writes these bytes back, waits, and so makes them durable before whatever is stored from then on. On a logged heap
 * nothing is durable before a checkpoint. The same in two steps: what was written back any number of times is durable
 * with the next fence of the thread. EFAULT: not all of it lies in the heap. */
int spandrel_heap_persist(const spandrel_heap *heap, const void *address, size_t length);
int spandrel_heap_write_back(const spandrel_heap *heap, const void *address, size_t length);
int spandrel_heap_fence(const spandrel_heap *heap);

/* Makes what was stored until now durable, on every medium; on a logged heap nothing else does. When it has returned 0, no failure loses
 * that, and no later checkpoint harms it, complete or not.
 *
 * Other threads may store meanwhile. The checkpoint has what was stored before the call; the heap's own structures (allocated objects,
 * roots) as of one moment; and what a thread stores meanwhile word by word, each aligned word as some store has left it.
 *
 * If another process waits to copy a mapped heap (spandrel_heap_copy), it is copied here, and the function returns when the copy is done.
 *   ENOSPC, EFBIG  no room on the disk: the next call tries again, with all of it,
 *   ESTALE         another file has the path of the heap, or its file was removed, or moved without its log: the next call looks again,
 *   EIO, ...       the disk refused: what was durable before still is, and no later call makes more durable. */
int spandrel_heap_checkpoint(const spandrel_heap *heap);

/* Releases memory that the process holds beside the file of a logged heap, for pages that the last checkpoint has: they read the same
 * afterwards, from the file. Returns the number of bytes; on other media 0. In a process with one thread checkpoints do it by themselves,
 * after each 32 MiB; a process with several threads calls this while none of them stores to the heap. Fails as spandrel_heap_checkpoint
 * does. */
size_t spandrel_heap_give_back(const spandrel_heap *heap);

/* Compares all pages of the file, as of the last checkpoint, with their sums (`sums` in the options). Returns the number of pages that are not
 * what their sums say; `spandrel heap check` names them. All of the file is read. A page that the program writes to before it was compared
 * gets the sum of what it then holds.
 *   ENODATA  the heap has no sums. Else as spandrel_heap_checkpoint. */
int spandrel_heap_verify_sums(const spandrel_heap *heap);

/* Writes a copy of a heap to a new file, which is opened as any heap, whether or not a program has the heap open. The copy of a
 * heap that is closed, or was not closed, is the file. Of an open one that keeps a log it is the last checkpoint. An open one
 * that is mapped is copied at the next spandrel_heap_checkpoint of its process, for which this function waits: wait_ms
 * milliseconds, or 10 seconds if that is 0. `to` is there whole or not at all, and durable when this returns.
 *   EEXIST       there is a file `to`, or a log of that name that is not empty,
 *   ETIMEDOUT    the heap is open and mapped, and came to no checkpoint in the time,
 *   EWOULDBLOCK  the heap is open and mapped, and no checkpoint of its process can be requested,
 *   ENOSPC, EFBIG, ENOMEM as above; else as spandrel_heap_restart, but for EUCLEAN. */
int spandrel_heap_copy(const char *path, const char *to, unsigned int wait_ms);

/* The text of the last of these functions that failed on this thread, without a full stop; "" before any. It has the path where a heap was
 * to be made, opened or copied (of a long path the end), the reason in words, and the way out behind a semicolon. The text stays until the
 * thread calls this function again, or fails to make, open or copy a heap. */
const char *spandrel_heap_error_text(void);

/* For programs that know of one heap only (makalu.h): a heap may be set to be the default one, until it is closed.
 * EBUSY: there is one already; NULL: none is. */
spandrel_heap *spandrel_heap_default(void);
int spandrel_heap_set_default(spandrel_heap *heap);

#ifdef __cplusplus
}
#endif

#endif
