/* SPDX-License-Identifier: MIT */
/*
 * A buffer per thread for the data of replies, so that a read costs no allocation and can go to the
 * device directly. Only the pages that were ever used take memory.
 */
#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "server.h"

enum { ALIGNMENT_BYTES = 4096 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;

static void create_key(void)
{
    key_error = pthread_key_create(&key, free);
}

void *scratch_get(size_t size)
{
    void *buffer;

    if (size > SERVER_MAX_TRANSFER_BYTES || pthread_once(&once, create_key) != 0 || key_error != 0)
        return NULL;
    buffer = pthread_getspecific(key);
    if (buffer != NULL)
        return buffer;
    buffer = aligned_alloc(ALIGNMENT_BYTES, SERVER_MAX_TRANSFER_BYTES);
    if (buffer != NULL && pthread_setspecific(key, buffer) != 0) {
        free(buffer);
        buffer = NULL;
    }
    return buffer;
}
