// mimalloc as one translation unit, and what a host needs of it beyond its public interface.
//
// mimalloc expects to be started by the loader, in the program's first thread. Here it starts at
// its first request, which may be in any thread, long after the program began, and its
// constructor is not compiled (MI_PRIM_HAS_PROCESS_ATTACH).

#include <sys/prctl.h>
#include <linux/prctl.h>
// The host names its mappings; without this every mapping would cost a second system call.
#undef PR_SET_VMA

#include "static.c"

// A thread id that no thread has: ids are addresses of thread control blocks.
#define HOST_NO_THREAD ((mi_threadid_t)0x10)

// The first range of addresses that is taken, in KiB; later ones are longer. mimalloc's own is 1 GiB.
#define HOST_FIRST_RANGE_KIB (128 * 1024)

// Starts the allocator, once. To be called before anything else of it.
//
// The statically allocated heap of "the main thread" belongs to the thread that comes first, is
// given up when that thread ends, and is then found again, empty, by any later thread whose control
// block has the same address. So the main thread is declared to be none, and every thread gets a
// heap of its own in the ordinary way.
//
// With `watch_threads` the allocator learns of a thread's end through a thread-specific key of its
// own; without it the host calls `mi_thread_done` in the ending thread.
//
// With `lazy` memory is made accessible only as it is needed: where that counts against a limit.
void mi_host_start(bool watch_threads, bool lazy) {
  mi_atomic_do_once {
    if (lazy) {
      mi_option_set(mi_option_arena_eager_commit, 0);
      mi_option_set(mi_option_disallow_arena_alloc, 1);
    }
    // A first range of a gibibyte would count against a limit of the address space that comes later, also where only a few requests were tried here.
    mi_option_set_default(mi_option_arena_reserve, HOST_FIRST_RANGE_KIB);
    tld_main.thread_id = HOST_NO_THREAD;
    os_preloading = false;
    mi_process_init();
    if (watch_threads) {
      _mi_prim_thread_init_auto_done();
      _mi_prim_thread_associate_default_theap(_mi_theap_default());
    }
    _mi_thread_locals_init();
    _mi_options_post_init();
  }
}

// Takes every lock that another thread might hold while this one forks, outermost first. Calls the
// memory hooks of the host below its locks, so the host's own locks come after these.
void mi_host_fork_prepare(void) {
  mi_lock_acquire(&heap_main.arena_pages_lock);
  mi_lock_acquire(&subproc_main.arena_reserve_lock);
  mi_lock_acquire(&mi_page_map_lock);
  mi_lock_acquire(&heap_main.os_abandoned_pages_lock);
  mi_lock_acquire(&heap_main.theaps_lock);
  mi_lock_acquire(&out_buf_lock);
}

// Gives the locks back, in the parent and in the child.
void mi_host_fork_release(void) {
  mi_lock_release(&out_buf_lock);
  mi_lock_release(&heap_main.theaps_lock);
  mi_lock_release(&heap_main.os_abandoned_pages_lock);
  mi_lock_release(&mi_page_map_lock);
  mi_lock_release(&subproc_main.arena_reserve_lock);
  mi_lock_release(&heap_main.arena_pages_lock);
}
