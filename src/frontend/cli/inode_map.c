/* SPDX-License-Identifier: MIT */
/*
 * Open addressing with linear probing; at most two thirds full. Entries are never removed.
 * Called by ls, get and the scan behind the progress bar.
 */
#include "inode_map.h"

#include <errno.h>
#include <stdlib.h>

static size_t first_slot(const struct inode_map *map, uint64_t ino)
{
    return (size_t)(ino * 0x9e3779b97f4a7c15ull >> 17) & (map->capacity - 1);
}

static struct inode_map_slot *find_slot(const struct inode_map *map, uint64_t ino)
{
    size_t i = first_slot(map, ino);

    while (map->slots[i].ino != 0 && map->slots[i].ino != ino)
        i = (i + 1) & (map->capacity - 1);
    return &map->slots[i];
}

static int grow(struct inode_map *map)
{
    struct inode_map bigger = {.capacity = map->capacity ? map->capacity * 2 : 64};

    bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].ino != 0)
            *find_slot(&bigger, map->slots[i].ino) = map->slots[i];
    }
    bigger.count = map->count;
    free(map->slots);
    *map = bigger;
    return 0;
}

int inode_map_add(struct inode_map *map, uint64_t ino)
{
    struct inode_map_slot *slot;

    if (map->capacity == 0 || map->count >= map->capacity / 3 * 2) {
        if (grow(map) < 0)
            return -ENOMEM;
    }
    slot = find_slot(map, ino);
    if (slot->ino == ino)
        return 0;
    slot->ino = ino;
    map->count++;
    return 1;
}

void **inode_map_find(const struct inode_map *map, uint64_t ino)
{
    struct inode_map_slot *slot;

    if (map->capacity == 0)
        return NULL;
    slot = find_slot(map, ino);
    return slot->ino == ino ? &slot->value : NULL;
}

void inode_map_clear(struct inode_map *map, bool has_owned_values)
{
    for (size_t i = 0; has_owned_values && i < map->capacity; i++)
        free(map->slots[i].value);
    free(map->slots);
    *map = (struct inode_map){0};
}
