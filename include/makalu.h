/* makalu.h: the interface of Makalu (OOPSLA '16) by its own names, over one recoverable heap of Spandrel.
 *
 * The paper has names and no signatures. Here they are those of its published sources as far as a heap that lies in a file, and maps
 * it itself, lets them: where the sources have a callback that finds memory in a region, or the address of the heap in that region,
 * there is the path of the file. The names of the sources that differ from the paper's are there as well.
 *
 * The heap is fixed: addresses of objects may be stored in it, as in Makalu's. What fails sets errno, and
 * spandrel_heap_error_text tells why, as for the functions of spandrel_heap.h, which can be used beside these with
 * spandrel_heap_default(). Makalu itself ends the program where MAK_restart and MAK_start_off return -1 here.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_MAKALU_H
#define SPANDREL_MAKALU_H

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "spandrel_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a heap the one that all below use: 0, or -1 if there is none, or one already. */
static inline int MAK_use_heap(spandrel_heap *heap) {
    if (!heap) return -1;
    if (spandrel_heap_set_default(heap) == 0) return 0;
    spandrel_heap_close(heap);
    errno = EBUSY;
    return -1;
}

/* Whether there is none yet, so that one may be made. */
static inline int MAK_has_none(void) {
    if (!spandrel_heap_default()) return 1;
    errno = EBUSY;
    return 0;
}

/* Sets up a heap in a new file. Where it begins, or NULL. */
static inline void *MAK_start(const char *path) {
    spandrel_heap_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.fixed = 1;
    if (!MAK_has_none() || MAK_use_heap(spandrel_heap_start(path, &options)) != 0) return NULL;
    return spandrel_heap_base(spandrel_heap_default());
}

/* Restarts from a heap that was closed: 0, or -1; EUCLEAN: it was not. */
static inline int MAK_restart(const char *path) {
    return MAK_has_none() ? MAK_use_heap(spandrel_heap_restart(path, NULL)) : -1;
}

/* Restarts offline: 0, or -1. Nothing can be allocated before MAK_collect if the heap was not closed. */
static inline int MAK_start_off(const char *path) {
    return MAK_has_none() ? MAK_use_heap(spandrel_heap_start_off(path, NULL)) : -1;
}

/* Collects, offline: not 0 if all went well. */
static inline int MAK_collect(void) { return spandrel_heap_collect(spandrel_heap_default(), NULL) == 0; }
static inline int MAK_collect_off(void) { return MAK_collect(); }

/* Stops gracefully: 0, or -1. */
static inline int MAK_close(void) { return spandrel_heap_close(spandrel_heap_default()); }

static inline void *MAK_malloc(size_t size) { return spandrel_heap_malloc(spandrel_heap_default(), size); }
static inline void *MAK_calloc(size_t count, size_t size) {
    return spandrel_heap_calloc(spandrel_heap_default(), count, size);
}
static inline void *MAK_realloc(void *object, size_t size) {
    return spandrel_heap_realloc(spandrel_heap_default(), object, size);
}
static inline void MAK_free(void *object) { spandrel_heap_free(spandrel_heap_default(), object); }

/* Has MAK_free call a function instead, which takes the object; NULL: no more. MAK_safe_free frees it. */
typedef void (*MAK_free_callback)(void *object);
static inline void MAK_hand_over(void *object, void *argument) {
    MAK_free_callback callback;
    memcpy(&callback, &argument, sizeof callback);
    callback(object);
}
static inline int MAK_set_free_cb(MAK_free_callback callback) {
    void *argument;
    memcpy(&argument, &callback, sizeof argument);
    return spandrel_heap_set_free_cb(spandrel_heap_default(), callback ? MAK_hand_over : NULL, argument);
}
static inline void MAK_safe_free(void *object) { spandrel_heap_safe_free(spandrel_heap_default(), object); }

/* The same as the sources have it: with the thread that frees. */
typedef void (*MAK_fas_free_callback)(pthread_t thread, void *object);
static inline void MAK_hand_over_in(void *object, void *argument) {
    MAK_fas_free_callback callback;
    memcpy(&callback, &argument, sizeof callback);
    callback(pthread_self(), object);
}
static inline void MAK_set_defer_free_fn(MAK_fas_free_callback callback) {
    void *argument;
    memcpy(&argument, &callback, sizeof argument);
    spandrel_heap_set_free_cb(spandrel_heap_default(), callback ? MAK_hand_over_in : NULL, argument);
}
static inline void MAK_free_imm(void *object) { MAK_safe_free(object); }

/* Roots, 0 to 511: 0, or -1; the object, or NULL. */
static inline int MAK_set_root(unsigned int id, void *object) {
    return spandrel_heap_set_root(spandrel_heap_default(), id, object);
}
static inline void *MAK_get_root(unsigned int id) { return spandrel_heap_get_root(spandrel_heap_default(), id); }
static inline void MAK_set_persistent_root(unsigned int id, void *object) { (void)MAK_set_root(id, object); }
static inline void *MAK_persistent_root(unsigned int id) { return MAK_get_root(id); }

#ifdef __cplusplus
}
#endif

#endif
