/* SPDX-License-Identifier: MIT */
/*
 * The power-cut explorer: what its files share.
 *
 * A workload changes one or two domains, directories /d0 and /d1 that one thread each owns, and
 * notes each call as an operation with the number of device records at its begin and end. From
 * these the model works out what an image may and must hold after a cut at any record.
 */
#ifndef UEXT4_TESTS_CRASH_H
#define UEXT4_TESTS_CRASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "block/record.h"
#include "uext4.h"

#define MAX_OPERATIONS 1500
#define MAX_OBJECTS    600
#define MAX_PATH       96
#define MAX_FILE_BYTES (512u << 10)
#define MAX_DOMAINS    2
#define MESSAGE_BYTES  400

/* What is wrong with a state, in words. */
struct finding {
    char text[MESSAGE_BYTES];
};

enum operation_kind {
    OP_CREATE,
    OP_MKDIR,
    OP_UNLINK,
    OP_RMDIR,
    OP_RENAME,
    OP_EXCHANGE,
    OP_LINK,
    OP_WRITE,
    OP_TRUNCATE,
    OP_PROMISE,     /* a successful fsync of `object` */
    OP_PROMISE_ALL, /* a successful sync */
};

struct operation {
    enum operation_kind kind;
    size_t begin, end;           /* device records when the call began, and when it had ended */
    int object, parent, parent2; /* 0: the domain's directory */
    char path[MAX_PATH], path2[MAX_PATH];
    uint64_t offset, length; /* of a write; a truncate's size is `length` */
    uint64_t size_after;     /* of a write: what the call reported */
};

struct domain {
    char root[8];
    struct uext4 *fs;
    struct device *record;
    unsigned int seed;
    struct operation operations[MAX_OPERATIONS];
    int operation_count;
    int no_space_count;                       /* calls that ended with -ENOSPC or short */
    uint64_t name_hashes[MAX_OPERATIONS + 1]; /* of the names after so many operations */
    int object_count;                         /* 0 is the directory itself */
    struct uext4_inode *inodes[MAX_OBJECTS];  /* open ones */
    uint64_t sizes[MAX_OBJECTS];
    uint8_t *promised[MAX_OBJECTS]; /* a cache: content at the promise of the next line */
    int promised_at[MAX_OBJECTS];
    uint64_t promised_size[MAX_OBJECTS];
};

/* A file or directory that was found in an image. */
struct seen {
    char path[MAX_PATH];
    bool is_directory;
    uint32_t link_count;
    uint64_t ino, size;
    uint8_t *content;
};

struct tree {
    struct seen *entries;
    int count, capacity;
};

/* ---- model.c: operations that note themselves, and what may be there after a cut ------------- */

uint64_t mix(uint64_t hash, uint64_t value);
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length);

/* Each returns the call's result; objects are numbers. A failed call is not noted. */
int op_create(struct domain *domain, const char *path, int *object);
int op_mkdir(struct domain *domain, const char *path);
int op_unlink(struct domain *domain, const char *path);
int op_rmdir(struct domain *domain, const char *path);
int op_rename(struct domain *domain, const char *path, const char *path2, bool is_exchange);
int op_link(struct domain *domain, int object, const char *path);
int64_t op_write(struct domain *domain, int object, uint64_t offset, size_t length);
int op_truncate(struct domain *domain, int object, uint64_t size);
int op_fsync(struct domain *domain, int object, bool data_only);
int op_fsync_directory(struct domain *domain, const char *path);
int op_sync(struct domain *domain);
void op_close(struct domain *domain, int object);
void op_close_all(struct domain *domain);

/* To be called once, when the workload has ended. */
void model_finish(struct domain *domain);

/* How many promises hold at a cut: a state is the same only with the same ones. */
uint64_t model_promises(const struct domain *domain, size_t cut);

/* Compares what was found with what may be there. */
bool model_check(struct domain *domain, size_t cut, const struct tree *tree,
                 struct finding *finding);

/* ---- workloads.c ----------------------------------------------------------------------------- */

struct workload {
    const char *name;
    const char *shape; /* of mke2fs; NULL: by the seed */
    unsigned int domain_count;
    bool is_disk_full;
    void (*run)(struct domain *domain);
};

extern const struct workload workloads[];
extern const unsigned int workload_count;

/* ---- tree.c ---------------------------------------------------------------------------------- */

/* Reads everything below a directory of the root. */
bool tree_read(struct uext4 *fs, const char *root, struct tree *tree, struct finding *finding);
uint64_t tree_digest(const struct tree *tree);
void tree_free(struct tree *tree);

#endif
