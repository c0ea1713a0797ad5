/* spandrel.h: modes, scopes, allocators by name and statistics of Spandrel.
 *
 * Link with -lspandrel, or run any program with LD_PRELOAD=libspandrel.so and
 * look these functions up with dlsym. malloc, free, operator new and the rest of
 * the standard interface are Spandrel's in either case; whatever they return may
 * be freed and reallocated under any mode, by any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_H
#define SPANDREL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocators by number. Which are built in, spandrel_malloc_in tells: it fails
 * with EINVAL for one that is not. */
enum {
    SPANDREL_SYS = 0,      /* glibc */
    SPANDREL_JEMALLOC = 1,
    SPANDREL_MIMALLOC = 2,
    SPANDREL_TCMALLOC = 3,
    SPANDREL_MMAP = 4,     /* page-mapped, with room to grow */
    SPANDREL_NATIVE = 5,   /* our own general-purpose allocator */
    SPANDREL_ALLOCATORS = 6
};

/* The version, as "0.1.0". */
const char *spandrel_version(void);

/* The mode of the process, in the form that spandrel_set_mode reads. The text
 * stays valid. */
const char *spandrel_mode(void);

/* Puts the process into a mode:
 *   "auto", "native", "sys", "jemalloc", "mimalloc", "mmap",
 *   "template", "template=brug", "template=0-4KiB:jemalloc,4KiB-:mmap",
 *   "switch", "switch=jemalloc,point=128KiB,threshold=8"
 * Objects stay where they are. Returns 0, or
 *   EINVAL   the text is no mode,
 *   ENOTSUP  it needs an allocator that is not built in,
 *   ENOSPC   the process has used 32 different modes already. */
int spandrel_set_mode(const char *mode);

/* What this thread allocates from here to the matching spandrel_scope_leave is
 * placed by this mode. Nestable up to 24 deep. Returns as spandrel_set_mode
 * does, and EAGAIN when nested too deeply; after a failure do not leave. */
int spandrel_scope_enter(const char *mode);
void spandrel_scope_leave(void);

/* As malloc, calloc, aligned_alloc and realloc, from one allocator whatever the
 * mode: for data structures that know best. On failure they return NULL with
 * errno ENOMEM, or EINVAL for a number of no built-in allocator and for an
 * alignment that is no power of two. spandrel_realloc_in moves an object of any
 * allocator to this one; as realloc, it frees an object whose new size is 0 and
 * returns NULL. Objects of SPANDREL_MMAP end at 128 GiB. */
void *spandrel_malloc_in(int allocator, size_t size);
void *spandrel_calloc_in(int allocator, size_t count, size_t size);
void *spandrel_aligned_alloc_in(int allocator, size_t alignment, size_t size);
void *spandrel_realloc_in(int allocator, void *object, size_t size);

/* The number of the allocator that owns an address; SPANDREL_SYS for whatever no
 * other claims. */
int spandrel_owner(const void *object);

/* Sizes are in bytes. What is counted per allocator is zero unless counting is on. */
struct spandrel_stats {
    uint64_t allocations[SPANDREL_ALLOCATORS];
    uint64_t allocated_bytes[SPANDREL_ALLOCATORS];
    uint64_t reallocations[SPANDREL_ALLOCATORS];
    uint64_t frees[SPANDREL_ALLOCATORS];
    uint64_t realloc_in_place;      /* the address stayed */
    uint64_t realloc_moved_pages;   /* page tables moved, no byte was copied */
    uint64_t realloc_copied;        /* copied within an allocator */
    uint64_t realloc_copied_bytes;  /* by these and by migrations */
    uint64_t realloc_migrated;      /* copied to another allocator */
    uint64_t mmap_live_objects;
    uint64_t mmap_live_bytes;
    uint64_t mmap_warm_bytes;       /* resident, kept for the next object */
    uint64_t mmap_reused_bytes;     /* given out warm, without page faults */
    uint64_t counting;              /* 1 while requests are counted */
};

/* Fills the first `size` bytes of `stats`; pass sizeof(struct spandrel_stats).
 * Later versions append fields. Returns 0, or EINVAL for a null pointer. */
int spandrel_stats(struct spandrel_stats *stats, size_t size);

/* A figure of the native allocator by its name, which is its name in what
 * `spandrel stat --json` prints: "live_bytes", "resident_bytes", "covered_bytes",
 * "released_background_bytes", ... docs/statistics.md has all of them. Takes
 * the allocator's locks for some microseconds; "resident_bytes", "tables_bytes",
 * "pageheap_bytes" and the peaks have the kernel look at each page of the heap. Returns 0, EINVAL for null
 * pointers, or ENOENT for a name that is none; zero is the value of all before
 * the allocator has started. */
int spandrel_figure(const char *name, uint64_t *value);

/* Writes the statistics to standard error. */
void spandrel_stats_print(void);

/* Turns the counting of requests on (not 0) or off (0); off at first, unless
 * SPANDREL_STATS is set. Costs a few nanoseconds per request. */
void spandrel_count_requests(int on);

/* What reallocation has cost an object while a monitor ran. */
struct spandrel_object {
    const void *address;        /* where it is, or was when it ended */
    uint64_t size;              /* asked for last */
    uint64_t reallocations;
    uint64_t moves;             /* of these, with another address */
    uint64_t migrations;        /* of these, to another allocator */
    uint64_t requested_bytes;   /* all sizes that were asked for */
    uint64_t nanoseconds;       /* that its reallocations took */
    int32_t allocator;          /* its owner */
    int32_t live;               /* 1 while it has not been freed */
};

/* The object monitor: watches all objects that are resized, until it was stopped as often as started. Requests
 * take some hundred nanoseconds longer meanwhile. Up to 4,096 objects are known, also when they have ended; where there
 * are more, those that were resized least make room. spandrel_realloc_in is not seen. */
void spandrel_monitor_start(void);
void spandrel_monitor_stop(void);

/* What is known of a live object: 0, EINVAL for a null `out`, or ENOENT: it was not resized while a monitor
 * ran, or made room for others. */
int spandrel_monitor_object(const void *object, struct spandrel_object *out);

/* Fills `out` with up to `count` objects, 64 at most, those with most reallocations first; how many there are. */
size_t spandrel_monitor_objects(struct spandrel_object *out, size_t count);

#ifdef __cplusplus
}
#endif

#endif
