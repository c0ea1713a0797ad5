/* mangosteen.h: the interface of Mangosteen (ATC '24, Listing 1) by its own names, over one durable state of Spandrel.
 *
 * A program initializes its state as usual, names what is durable (SPANDREL_DURABLE before a variable, or spandrel_durable_variable), and calls
 * initMangosteen. On a later start what was initialized before is replaced by the recovered state. spandrel_durable.h says how such a program is compiled and
 * linked, and what must hold. What fails sets errno, and spandrel_durable_error_text tells why.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SPANDREL_MANGOSTEEN_H
#define SPANDREL_MANGOSTEEN_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spandrel_durable.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A response. getResponse allocates the structure, and the library frees it; the bytes are the program's. */
typedef spandrel_durable_response mangoResponse;

/* Where requests come from: the program's own threads, by ClientCmd, or clients at a socket. */
enum { MODE_LOCAL = 0, MODE_RPC = 1 };

extern char __start_spandrel_durable[] __attribute__((weak, visibility("hidden")));
extern char __stop_spandrel_durable[] __attribute__((weak, visibility("hidden")));

/* Before main, and before constructors of the program. */
__attribute__((constructor(101), used)) static void mangosteen_load(void) {
    if (__start_spandrel_durable)
        spandrel_durable_variable(__start_spandrel_durable, (size_t)(__stop_spandrel_durable - __start_spandrel_durable));
    spandrel_durable_load();
}

/* The framing of MODE_RPC, to be called in the file that calls initMangosteen. The paper has none: where in a stream of bytes a request ends; see `frame` of spandrel_durable_callbacks. */
static size_t (*mangosteen_frame)(const void *bytes, size_t length);
static inline void mangosteenFraming(size_t (*frame)(const void *bytes, size_t length)) {
    mangosteen_frame = frame;
}

/* Starts the program's commands: 0, or -1.
 * MODE_LOCAL: only the functions that say whether a request reads only and that process it are needed; others may be NULL.
 * MODE_RPC: serves clients at the Unix socket SPANDREL_DURABLE_SOCKET, with SPANDREL_DURABLE_WORKERS threads (4), and returns only if it fails. All functions are
 * needed, and mangosteenFraming comes before it. */
static inline int initMangosteen(void *(*init_client)(void *params), void (*deserialize)(void *client, void *request),
                                 bool (*is_read_only)(void *client), void (*process)(void *client), void (*destroy_client)(void *client),
                                 mangoResponse *(*response)(void *client), int mode) {
    const char *workers = getenv("SPANDREL_DURABLE_WORKERS");
    spandrel_durable_callbacks callbacks;
    if (mode != MODE_LOCAL && mode != MODE_RPC) {
        errno = EINVAL;
        return -1;
    }
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.struct_size = sizeof callbacks;
    callbacks.is_read_only = is_read_only;
    callbacks.process = process;
    callbacks.init_client = init_client;
    callbacks.destroy_client = destroy_client;
    callbacks.deserialize = deserialize;
    callbacks.response = response;
    callbacks.frame = mangosteen_frame;
    if (spandrel_durable_start(&callbacks) != 0) return -1;
    if (mode == MODE_LOCAL) return 0;
    return spandrel_durable_serve(getenv("SPANDREL_DURABLE_SOCKET"), workers ? (unsigned int)atoi(workers) : 4);
}

/* The other name of the paper. */
static inline int mangosteenInit(void *(*init_client)(void *params), void (*deserialize)(void *client, void *request),
                                 bool (*is_read_only)(void *client), void (*process)(void *client), void (*destroy_client)(void *client),
                                 mangoResponse *(*response)(void *client), int mode) {
    return initMangosteen(init_client, deserialize, is_read_only, process, destroy_client, response, mode);
}

/* Processes the request of a client: 0, or -1. When it returns 0 the effects are durable. */
static inline int ClientCmd(void *client) {
    return spandrel_durable_command_of(client);
}

#ifdef __cplusplus
}
#endif

#endif
