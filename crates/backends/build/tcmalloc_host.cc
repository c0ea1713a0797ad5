// google/tcmalloc as one translation unit, with what a host of it needs.
//
// Compiled alone, without exceptions, restartable sequences and sampling, and
// without a C++ runtime: what the reachable code needs of one is at the end of
// this file. The build script then drops everything that the functions named
// `host_*` do not reach, constructors included, and makes all names private.

// Running out of memory is an answer to whoever asked, not a message.
#include "tcmalloc/internal/logging.h"
#undef TC_LOG
#define TC_LOG(...) ((void)0)

#include "tcmalloc/tcmalloc.cc"

#include "tcmalloc/allocation_sample.cc"
#include "tcmalloc/allocation_sampling.cc"
#include "tcmalloc/arena.cc"
#include "tcmalloc/central_freelist.cc"
#include "tcmalloc/common.cc"
#include "tcmalloc/cpu_cache.cc"
#include "tcmalloc/deallocation_profiler.cc"
#include "tcmalloc/error_reporting.cc"
#include "tcmalloc/experiment.cc"
#include "tcmalloc/global_stats.cc"
#include "tcmalloc/guarded_page_allocator.cc"
#include "tcmalloc/huge_address_map.cc"
#include "tcmalloc/huge_allocator.cc"
#include "tcmalloc/huge_cache.cc"
#include "tcmalloc/huge_page_aware_allocator.cc"
#include "tcmalloc/internal/allocation_guard.cc"
#include "tcmalloc/internal/cache_topology.cc"
#include "tcmalloc/internal/environment.cc"
#include "tcmalloc/internal/hook_list.cc"
#include "tcmalloc/internal/logging.cc"
#include "tcmalloc/internal/memory_stats.cc"
#include "tcmalloc/internal/memory_tag.cc"
#include "tcmalloc/internal/mincore.cc"
#include "tcmalloc/internal/numa.cc"
#include "tcmalloc/internal/page_size.cc"
#include "tcmalloc/internal/pageflags.cc"
#include "tcmalloc/internal/percpu.cc"
#include "tcmalloc/internal/residency.cc"
#include "tcmalloc/internal/sysinfo.cc"
#include "tcmalloc/internal/util.cc"
#include "tcmalloc/malloc_hook.cc"
#include "tcmalloc/page_allocator.cc"
#include "tcmalloc/page_allocator_interface.cc"
#include "tcmalloc/pagemap.cc"
#include "tcmalloc/parameters.cc"
#include "tcmalloc/peak_heap_tracker.cc"
#include "tcmalloc/sampler.cc"
#include "tcmalloc/selsan/selsan.cc"
#include "tcmalloc/sizemap.cc"
#include "tcmalloc/span.cc"
#include "tcmalloc/stack_trace_table.cc"
#include "tcmalloc/static_vars.cc"
#include "tcmalloc/stats.cc"
#include "tcmalloc/system-alloc.cc"
#include "tcmalloc/thread_cache.cc"
#include "tcmalloc/transfer_cache.cc"

// Three tables of size classes, which use the same names for their own things.
#define Assumptions Pow2Assumptions
#define List Pow2List
#include "tcmalloc/experimental_pow2_size_class.cc"
#undef Assumptions
#undef List
#define Assumptions LegacyAssumptions
#define List LegacyList
#include "tcmalloc/legacy_size_classes.cc"
#undef Assumptions
#undef List
#include "tcmalloc/size_classes.cc"

#include "absl/base/internal/cycleclock.cc"
#include "absl/base/internal/low_level_alloc.cc"
#include "absl/base/internal/raw_logging.cc"
#include "absl/base/internal/spinlock.cc"
#include "absl/base/internal/spinlock_wait.cc"
#include "absl/base/internal/strerror.cc"
#include "absl/base/internal/sysinfo.cc"
#include "absl/base/internal/throw_delegate.cc"
#include "absl/base/internal/unscaledcycleclock.cc"
#include "absl/container/internal/raw_hash_set.cc"
#include "absl/debugging/internal/address_is_readable.cc"
#include "absl/debugging/stacktrace.cc"
#include "absl/hash/internal/city.cc"
#include "absl/hash/internal/hash.cc"
#include "absl/hash/internal/low_level_hash.cc"
#include "absl/numeric/int128.cc"
#include "absl/profiling/internal/exponential_biased.cc"
#include "absl/strings/ascii.cc"
#include "absl/strings/internal/memutil.cc"
#include "absl/strings/internal/str_format/arg.cc"
#include "absl/strings/internal/str_format/bind.cc"
#include "absl/strings/internal/str_format/extension.cc"
#include "absl/strings/internal/str_format/float_conversion.cc"
#include "absl/strings/internal/str_format/output.cc"
#include "absl/strings/internal/str_format/parser.cc"
#include "absl/strings/match.cc"
#include "absl/strings/numbers.cc"
#include "absl/strings/str_cat.cc"
#include "absl/time/clock.cc"
#include "absl/time/duration.cc"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using absl::base_internal::SpinLock;
using tcmalloc::tcmalloc_internal::Arena;
using tcmalloc::tcmalloc_internal::fast_alloc;
using tcmalloc::tcmalloc_internal::kNumClasses;
using tcmalloc::tcmalloc_internal::pageheap_lock;
using tcmalloc::tcmalloc_internal::Parameters;
using tcmalloc::tcmalloc_internal::release_lock;
using tcmalloc::tcmalloc_internal::Static;
using tcmalloc::tcmalloc_internal::ThreadCache;

// Every lock that a thread may hold while it allocates or frees, each before
// those that are taken under it.
template <typename F>
void ForEachLock(F f) {
  f(release_lock);
  f(ThreadCache::threadcache_lock_);
  for (size_t i = 0; i < kNumClasses; ++i) {
    auto& cache = Static::transfer_cache_.cache_[i].tc;
    f(cache.lock_);
    f(cache.freelist_do_not_access_directly_.lock_);
  }
  f(pageheap_lock);
  f(Static::threadcache_allocator_.metadata_lock_);
  f(Static::span_allocator_.metadata_lock_);
  f(Static::arena_.arena_lock_);
  f(Static::system_allocator_.spinlock_);
}

}  // namespace

extern "C" {

// What the constructors of a program with tcmalloc do, and the decisions that
// are made at first use otherwise, while a fork waits. Nothing is sampled.
void host_start() {
  Parameters::profile_sampling_interval_.store(0, std::memory_order_relaxed);
  Parameters::guarded_sampling_interval_.store(-1, std::memory_order_relaxed);
  Static().InitIfNecessary();
  ThreadCache::InitTSD();
  for (size_t size : {size_t{16}, size_t{1} << 20}) {
    TCMallocInternalFree(TCMallocInternalMalloc(size));
  }
}

void host_fork_prepare() {
  ForEachLock([](SpinLock& lock) { lock.Lock(); });
}

// In the parent and in the child.
void host_fork_release() {
  ForEachLock([](SpinLock& lock) { lock.Unlock(); });
}

void* host_malloc(size_t size) { return fast_alloc(size, MallocPolicy()); }

void* host_calloc(size_t count, size_t size) {
  return TCMallocInternalCalloc(count, size);
}

void* host_memalign(size_t align, size_t size) {
  return fast_alloc(size, MallocPolicy().AlignAs(align));
}

void* host_realloc(void* object, size_t size) {
  return do_realloc(object, size);
}

void host_free(void* object) { do_free(object, MallocPolicy()); }

// An object from `host_malloc` and its like, not from `host_memalign`.
void host_free_sized(void* object, size_t size) {
  do_free_with_size(object, size, MallocPolicy());
}

size_t host_usable_size(void* object) { return GetSize(object); }

// Gives what this thread and the caches between threads and pages hold back to
// the kernel; whether there was anything.
bool host_trim() {
  ThreadCache::BecomeIdle();
  // Once to learn what nobody takes, once to move it to the page heap.
  Static::transfer_cache_.TryPlunder();
  Static::transfer_cache_.TryPlunder();
  return MallocExtension_Internal_ReleaseMemoryToSystem(size_t{1} << 46) != 0;
}

}  // extern "C"

// Descriptions of the regions that tcmalloc asks for, a few words for each GiB
// and each larger object. They are never given back, and the caller holds a
// lock. tcmalloc's own definition goes past the hooks for memory.
namespace tcmalloc {

static char* region_space;
static size_t region_space_left;

void* AddressRegionFactory::MallocInternal(size_t size) {
  constexpr size_t kChunk = 64 << 10;
  size = (size + 15) & ~size_t{15};
  if (size > kChunk) return nullptr;
  if (size > region_space_left) {
    void* chunk = mmap(nullptr, kChunk, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED) return nullptr;
    region_space = static_cast<char*>(chunk);
    region_space_left = kChunk;
  }
  void* result = region_space;
  region_space += size;
  region_space_left -= size;
  return result;
}

size_t AddressRegionFactory::InternalBytesAllocated() { return 0; }
size_t AddressRegionFactory::GetStats(absl::Span<char>) { return 0; }
size_t AddressRegionFactory::GetStatsInPbtxt(absl::Span<char>) { return 0; }
AddressRegion::~AddressRegion() = default;

}  // namespace tcmalloc

// The C++ runtime, as far as it is reached: by messages before a crash.
template class std::basic_string<char>;

namespace std {
void __throw_length_error(const char*) { abort(); }
void __throw_logic_error(const char*) { abort(); }
void __throw_out_of_range_fmt(const char*, ...) { abort(); }
void __throw_bad_alloc() { abort(); }
void __throw_bad_array_new_length() { abort(); }
unsigned thread::hardware_concurrency() noexcept {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? static_cast<unsigned>(count) : 1;
}
chrono::steady_clock::time_point chrono::steady_clock::now() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return time_point(seconds(now.tv_sec) + nanoseconds(now.tv_nsec));
}
}  // namespace std

extern "C" void __cxa_pure_virtual() { abort(); }

void* operator new(size_t size) { return TCMallocInternalNew(size); }
void* operator new[](size_t size) { return TCMallocInternalNew(size); }
void operator delete(void* object) noexcept { host_free(object); }
void operator delete[](void* object) noexcept { host_free(object); }
void operator delete(void* object, size_t) noexcept { host_free(object); }
void operator delete[](void* object, size_t) noexcept { host_free(object); }
