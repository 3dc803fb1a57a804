/* SPDX-License-Identifier: MIT */
/*
 * Directories on images that mke2fs makes, with everything below them, and a set of names that
 * says what each must hold.
 */
#ifndef TESTS_UNIT_DIR_SUPPORT_H
#define TESTS_UNIT_DIR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dir/edit.h"

struct shape {
    const char *name;
    const char *size;
    const char *options; /* of mke2fs, separated by single spaces */
    const char *hash;    /* for tune2fs -E hash_alg=; may be NULL */
    bool is_casefolded;
};

extern const struct shape shapes[];
extern const size_t shape_count;
const struct shape *shape_find(const char *name);

#define TARGET_COUNT 4 /* files that names refer to, so that e2fsck is content with them */

struct rig {
    char folder[96], path[128];
    const struct shape *shape;
    struct volume volume;
    struct journal *journal;
    struct space *space;
    struct inode_table *inodes;
    uint32_t targets[TARGET_COUNT];
    uint32_t dir_ino; /* /d, empty at first */
    struct inode *dir;
};

struct rig *rig_create(const struct shape *shape);
void rig_open(struct rig *rig);

/* Sets the targets' link counts to what the names refer to, and commits. */
struct model;
void rig_close(struct rig *rig, const struct model *model);

/* e2fsck -fn must be content; `rig` is closed. */
void rig_check(const struct rig *rig);
void rig_destroy(struct rig *rig);

/* Runs a program, output to `text` (may be NULL). Returns its exit code. */
int run_program(const char *const arguments[], char *text, size_t size);

/* One change in a handle of its own, with dir_credits. */
int rig_insert(struct rig *rig, const char *name, size_t length, uint32_t ino);
int rig_remove(struct rig *rig, const char *name, size_t length);
int rig_replace(struct rig *rig, const char *name, size_t length, uint32_t ino);

/* ---- The model ------------------------------------------------------------------------------- */

struct model_name {
    struct model_name *chained;
    size_t index; /* in `names` */
    uint32_t ino;
    uint32_t seen; /* for readings */
    size_t length;
    char text[256];
};

struct model {
    struct model_name **names;
    size_t count, capacity;
    struct model_name *buckets[1 << 16];
};

struct model *model_create(void);
void model_destroy(struct model *model);
struct model_name *model_find(const struct model *model, const char *name, size_t length);
struct model_name *model_add(struct model *model, const char *name, size_t length, uint32_t ino);
void model_remove(struct model *model, struct model_name *name);

/* Reads all of the directory, `batch` entries a call, and compares. */
void model_compare(struct model *model, struct inode *dir, size_t batch);

/* ---- Random numbers -------------------------------------------------------------------------- */

uint64_t test_seed(void);
uint64_t draw(uint64_t bound);

/* A random name; casefolded directories get valid ones in many letters. Returns the length. */
size_t draw_name(const struct shape *shape, char *name, size_t max_length);

const char *messages(void);
void clear_messages(void);

#endif
