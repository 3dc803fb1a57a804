/* SPDX-License-Identifier: MIT */
/*
 * Real images under the real engine (device, buffers, journal, space, inodes), without the layers
 * above the map; and a model of one file's map that the map is compared with.
 */
#ifndef UEXT4_TESTS_MAP_FIXTURE_H
#define UEXT4_TESTS_MAP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map/change.h"
#include "map/edit.h"

#define FIXTURE_FILES 4

struct fixture {
    char folder[64];
    char image[96];
    struct log log;
    struct volume volume;
    struct inode_table *inodes;
    uint64_t free_at_start; /* blocks */
    uint32_t ino[FIXTURE_FILES];
};

/* Makes an image with FIXTURE_FILES empty files and opens it. */
void fixture_make(struct fixture *fixture, const char *mke2fs_arguments, const char *size);

/* Commits, closes, and lets e2fsck look, which must be content. */
void fixture_close(struct fixture *fixture);

/* Opens what was closed. */
void fixture_open(struct fixture *fixture);
void fixture_check(struct fixture *fixture);
void fixture_remove(struct fixture *fixture);

/* Messages that the engine logged as errors since the start. */
extern _Atomic unsigned int fixture_errors;

/* ---- Random numbers ---- */

extern uint64_t random_state;
uint32_t draw(uint32_t below);
void start_random(void);

/* ---- The model ---- */

struct model_block {
    uint32_t disk_block; /* 0: a hole */
    bool is_unwritten;
};

struct model {
    struct fixture *fixture;
    struct inode *inode;
    struct model_block *blocks;
    uint64_t count; /* file blocks that may be mapped */
};

void model_init(struct model *model, struct fixture *fixture, uint32_t ino, uint64_t count);
void model_destroy(struct model *model);

/* What a handle for one call of the map needs, with data of that length. */
void model_start(struct model *model, uint64_t length, struct handle *handle);

/*
 * Maps [first, first + length), holes all, to newly claimed blocks. Returns the call's result; on
 * an error nothing is claimed. `is_scattered`: blocks that do not follow the file's last.
 */
int model_insert(struct model *model, uint64_t first, uint64_t length, bool is_unwritten,
                 bool is_scattered);

/* Tries again after an error, and returns the first. */
int model_set_kind(struct model *model, uint64_t first, uint64_t length, bool is_unwritten);
int model_remove(struct model *model, uint64_t first, uint64_t end);
int model_shift(struct model *model, uint64_t first, int64_t delta);

/*
 * Compares: look-ups from 0 to the end, the tree itself node by node (invariants, checksums), what
 * i_blocks says, and what the allocator says is in use. Returns the depth.
 */
unsigned int model_compare(const struct model *model);

/* As model_compare, without the allocator: where several files live in the image. */
unsigned int model_compare_map(const struct model *model, uint64_t *sectors);

/* Compares with what debugfs shows of the closed image. */
void model_compare_debugfs(const struct model *model, uint32_t ino);

/* The size that covers what is mapped, so that e2fsck is content. */
void model_set_size(struct model *model);

/* ---- Trouble ---- */

/* The n-th next space_reserve of the code under test fails with this error; 0: none. */
extern unsigned int fail_reserve_in;
extern int fail_reserve_error;

/*
 * Within the next map_insert of a model, the n-th block that is new to the transaction cannot join
 * it (-ENOMEM); 0: all can. Counted down to 0 when it happens.
 */
extern unsigned int fail_modify_in;
extern bool is_modify_armed;

extern unsigned int extend_calls;        /* of journal_extend */
extern unsigned int refuse_extend_after; /* journal_extend says -ENOSPC after so many; 0: never */
extern unsigned int small_capacity;      /* entries of a new extent node; 0: as many as fit */

#endif
