/* SPDX-License-Identifier: MIT */
/*
 * The model of the explorer.
 *
 * Names of a domain must be those after some number of its operations: at least up to the last
 * name operation that a promise covers, and none that began after the cut. So a rename is seen
 * whole or not at all. Content must be that of the file's last promise, but for bytes that later
 * operations may have changed: each such byte is one that a write put there, or zero where the
 * file grew or was truncated.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "crash.h"

struct name {
    char path[MAX_PATH];
    bool is_directory;
    int object;
};

struct names {
    struct name entries[MAX_OBJECTS];
    int count;
};

uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    uint64_t word = 0;

    for (; length >= 8; length -= 8, from += 8) {
        memcpy(&word, from, 8);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, from, length);
    return mix(mix(hash, word), length);
}

/* The bytes that a write puts down: never zero, and unlike those of any other write. */
static uint8_t pattern(const struct domain *domain, int operation, uint64_t offset)
{
    uint64_t hash = mix(mix(domain->root[1], (uint64_t)operation), offset / 8);

    return (uint8_t)(1 + ((hash >> 8) + offset * 37) % 255);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static int find_name(const struct names *names, const char *path)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->entries[i].path, path) == 0)
            return i;
    return -1;
}

static void add_name(struct names *names, const char *path, bool is_directory, int object)
{
    struct name *name = &names->entries[names->count++];

    memcpy(name->path, path, MAX_PATH);
    name->is_directory = is_directory;
    name->object = object;
}

static void remove_name(struct names *names, const char *path)
{
    int index = find_name(names, path);

    if (index >= 0)
        names->entries[index] = names->entries[--names->count];
}

/* Moves a name and all below it. */
static void move_names(struct names *names, const char *path, const char *path2)
{
    size_t length = strlen(path);
    char moved[2 * MAX_PATH];

    for (int i = 0; i < names->count; i++) {
        struct name *name = &names->entries[i];

        if (strncmp(name->path, path, length) != 0 ||
            (name->path[length] != '\0' && name->path[length] != '/'))
            continue;
        snprintf(moved, sizeof(moved), "%s%s", path2, name->path + length);
        memcpy(name->path, moved, MAX_PATH);
    }
}

static void apply_name(struct names *names, const struct operation *operation)
{
    switch (operation->kind) {
    case OP_CREATE:
    case OP_MKDIR:
        add_name(names, operation->path, operation->kind == OP_MKDIR, operation->object);
        break;
    case OP_LINK:
        add_name(names, operation->path, false, operation->object);
        break;
    case OP_UNLINK:
    case OP_RMDIR:
        remove_name(names, operation->path);
        break;
    case OP_RENAME:
        remove_name(names, operation->path2);
        move_names(names, operation->path, operation->path2);
        break;
    case OP_EXCHANGE:
        move_names(names, operation->path, "//");
        move_names(names, operation->path2, operation->path);
        move_names(names, "//", operation->path2);
        break;
    default:
        break;
    }
}

static uint64_t hash_name(const char *path, bool is_directory)
{
    return hash_bytes(is_directory, path, strlen(path));
}

static uint64_t hash_names(const struct names *names)
{
    uint64_t hash = 0;

    for (int i = 0; i < names->count; i++)
        hash += hash_name(names->entries[i].path, names->entries[i].is_directory);
    return hash;
}

static void names_after(const struct domain *domain, int count, struct names *names)
{
    names->count = 0;
    for (int i = 0; i < count; i++)
        apply_name(names, &domain->operations[i]);
}

void model_finish(struct domain *domain)
{
    struct names *names = calloc(1, sizeof(*names));

    if (names == NULL)
        abort();
    for (int i = 0; i < domain->operation_count; i++) {
        apply_name(names, &domain->operations[i]);
        domain->name_hashes[i + 1] = hash_names(names);
    }
    free(names);
    for (int i = 0; i < MAX_OBJECTS; i++)
        domain->promised_at[i] = -2;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* The object that a path names now, -1 if none. */
static int object_of(const struct domain *domain, const char *path)
{
    static _Thread_local struct names names;

    if (path[0] == '\0')
        return 0;
    names_after(domain, domain->operation_count, &names);
    int index = find_name(&names, path);

    return index < 0 ? -1 : names.entries[index].object;
}

/* Splits a path into its directory, which is opened, and its last name. */
static int open_parent(struct domain *domain, const char *path, struct uext4_inode **dir,
                       const char **name, int *parent)
{
    const char *slash = strrchr(path, '/');
    char above[MAX_PATH] = "", full[2 * MAX_PATH];

    if (slash != NULL)
        memcpy(above, path, (size_t)(slash - path));
    *name = slash != NULL ? slash + 1 : path;
    *parent = object_of(domain, above);
    snprintf(full, sizeof(full), "/%s/%s", domain->root, above);
    return uext4_walk(domain->fs, full, 0, dir);
}

static struct operation *begin(struct domain *domain, enum operation_kind kind, int object)
{
    struct operation *operation = &domain->operations[domain->operation_count];

    if (domain->operation_count >= MAX_OPERATIONS - 1)
        abort();
    memset(operation, 0, sizeof(*operation));
    operation->kind = kind;
    operation->object = object;
    operation->parent = operation->parent2 = -1;
    operation->begin = record_count(domain->record);
    return operation;
}

static int end(struct domain *domain, struct operation *operation, int error)
{
    operation->end = record_count(domain->record);
    domain->no_space_count += error == -ENOSPC;
    if (error == 0)
        domain->operation_count++;
    else if (error != -ENOSPC)
        fprintf(stderr, "crash: operation %d of kind %d on %s: error %d\n", domain->operation_count,
                operation->kind, operation->path, error);
    return error;
}

int op_create(struct domain *domain, const char *path, int *object)
{
    struct uext4_new_inode what = {.mode = S_IFREG | 0644};
    struct uext4_inode *dir;
    struct operation *operation = begin(domain, OP_CREATE, domain->object_count + 1);
    const char *name;
    int error = open_parent(domain, path, &dir, &name, &operation->parent);

    strcpy(operation->path, path);
    if (error != 0)
        return error;
    *object = operation->object;
    error = uext4_create(dir, name, strlen(name), &what, &domain->inodes[*object]);
    uext4_inode_put(dir);
    domain->sizes[*object] = 0;
    if (error == 0)
        domain->object_count++;
    else
        domain->inodes[*object] = NULL;
    return end(domain, operation, error);
}

int op_mkdir(struct domain *domain, const char *path)
{
    struct uext4_new_inode what = {.mode = S_IFDIR | 0755};
    struct uext4_inode *dir;
    struct operation *operation = begin(domain, OP_MKDIR, domain->object_count + 1);
    const char *name;
    int error = open_parent(domain, path, &dir, &name, &operation->parent);

    strcpy(operation->path, path);
    if (error != 0)
        return error;
    error = uext4_mkdir(dir, name, strlen(name), &what, NULL);
    uext4_inode_put(dir);
    if (error == 0)
        domain->object_count++;
    return end(domain, operation, error);
}

static int remove_path(struct domain *domain, const char *path, enum operation_kind kind)
{
    struct uext4_inode *dir;
    struct operation *operation = begin(domain, kind, object_of(domain, path));
    const char *name;
    int error = open_parent(domain, path, &dir, &name, &operation->parent);

    strcpy(operation->path, path);
    if (error != 0)
        return error;
    error = kind == OP_UNLINK ? uext4_unlink(dir, name, strlen(name))
                              : uext4_rmdir(dir, name, strlen(name));
    uext4_inode_put(dir);
    return end(domain, operation, error);
}

int op_unlink(struct domain *domain, const char *path)
{
    return remove_path(domain, path, OP_UNLINK);
}

int op_rmdir(struct domain *domain, const char *path)
{
    return remove_path(domain, path, OP_RMDIR);
}

int op_rename(struct domain *domain, const char *path, const char *path2, bool is_exchange)
{
    struct uext4_inode *dir, *dir2;
    struct operation *operation = begin(domain, is_exchange ? OP_EXCHANGE : OP_RENAME,
                                        object_of(domain, path));
    const char *name, *name2;
    int error = open_parent(domain, path, &dir, &name, &operation->parent);

    strcpy(operation->path, path);
    strcpy(operation->path2, path2);
    if (error != 0)
        return error;
    error = open_parent(domain, path2, &dir2, &name2, &operation->parent2);
    if (error == 0) {
        error = uext4_rename(dir, name, strlen(name), dir2, name2, strlen(name2),
                             is_exchange ? UEXT4_RENAME_EXCHANGE : 0);
        uext4_inode_put(dir2);
    }
    uext4_inode_put(dir);
    return end(domain, operation, error);
}

int op_link(struct domain *domain, int object, const char *path)
{
    struct uext4_inode *dir;
    struct operation *operation = begin(domain, OP_LINK, object);
    const char *name;
    int error = open_parent(domain, path, &dir, &name, &operation->parent);

    strcpy(operation->path, path);
    if (error != 0)
        return error;
    error = uext4_link(domain->inodes[object], dir, name, strlen(name));
    uext4_inode_put(dir);
    return end(domain, operation, error);
}

int64_t op_write(struct domain *domain, int object, uint64_t offset, size_t length)
{
    struct operation *operation = begin(domain, OP_WRITE, object);
    uint8_t *buffer = malloc(length);

    if (buffer == NULL || offset + length > MAX_FILE_BYTES)
        abort();
    for (size_t i = 0; i < length; i++)
        buffer[i] = pattern(domain, domain->operation_count, offset + i);
    int64_t count = uext4_write(domain->inodes[object], buffer, length, offset);
    free(buffer);
    /* What a short write did past its count must not show, but its bytes are this file's. */
    operation->offset = offset;
    operation->length = count > 0 ? (uint64_t)count : 0;
    domain->sizes[object] = MAX(domain->sizes[object], offset + operation->length);
    operation->size_after = domain->sizes[object];
    domain->no_space_count += count > 0 && (size_t)count < length;
    end(domain, operation, count > 0 ? 0 : (int)count);
    return count;
}

int op_truncate(struct domain *domain, int object, uint64_t size)
{
    struct operation *operation = begin(domain, OP_TRUNCATE, object);

    operation->length = operation->size_after = size;
    int error = uext4_truncate(domain->inodes[object], size);
    if (error == 0)
        domain->sizes[object] = size;
    return end(domain, operation, error);
}

int op_fsync(struct domain *domain, int object, bool data_only)
{
    struct operation *operation = begin(domain, OP_PROMISE, object);

    return end(domain, operation, uext4_fsync(domain->inodes[object], data_only));
}

int op_fsync_directory(struct domain *domain, const char *path)
{
    struct operation *operation = begin(domain, OP_PROMISE, object_of(domain, path));
    struct uext4_inode *dir;
    char full[2 * MAX_PATH];

    snprintf(full, sizeof(full), "/%s/%s", domain->root, path);
    int error = uext4_walk(domain->fs, full, 0, &dir);
    if (error != 0)
        return error;
    error = uext4_fsync(dir, false);
    uext4_inode_put(dir);
    return end(domain, operation, error);
}

int op_sync(struct domain *domain)
{
    struct operation *operation = begin(domain, OP_PROMISE_ALL, 0);

    return end(domain, operation, uext4_sync(domain->fs));
}

void op_close(struct domain *domain, int object)
{
    uext4_inode_put(domain->inodes[object]);
    domain->inodes[object] = NULL;
}

void op_close_all(struct domain *domain)
{
    for (int i = 0; i < MAX_OBJECTS; i++)
        op_close(domain, i);
}

/* ---- After a cut ----------------------------------------------------------------------------- */

static bool is_promise(const struct operation *operation)
{
    return operation->kind == OP_PROMISE || operation->kind == OP_PROMISE_ALL;
}

static bool is_name_operation(const struct operation *operation)
{
    return operation->kind <= OP_LINK;
}

uint64_t model_promises(const struct domain *domain, size_t cut)
{
    uint64_t count = 0;

    for (int i = 0; i < domain->operation_count; i++)
        count += is_promise(&domain->operations[i]) && domain->operations[i].end <= cut;
    return count;
}

/* How many operations' names must be there. */
static int names_promised(const struct domain *domain, size_t cut)
{
    int result = 0;

    for (int i = 0; i < domain->operation_count; i++) {
        const struct operation *promise = &domain->operations[i];

        if (!is_promise(promise) || promise->end > cut)
            continue;
        for (int k = i - 1; k >= result; k--) {
            const struct operation *name = &domain->operations[k];

            if (is_name_operation(name) &&
                (promise->kind == OP_PROMISE_ALL || name->object == promise->object ||
                 name->parent == promise->object || name->parent2 == promise->object)) {
                result = k + 1;
                break;
            }
        }
    }
    return result;
}

/* The last promise for an object, -1 if none. */
static int last_promise(const struct domain *domain, int object, size_t cut)
{
    for (int i = domain->operation_count - 1; i >= 0; i--) {
        const struct operation *promise = &domain->operations[i];

        if (promise->end <= cut && (promise->kind == OP_PROMISE_ALL ||
                                    (promise->kind == OP_PROMISE && promise->object == object)))
            return i;
    }
    return -1;
}

/* Makes the content as it was at a promise, zero behind its end. */
static void make_promised(struct domain *domain, int object, int promise)
{
    if (domain->promised[object] == NULL)
        domain->promised[object] = malloc(MAX_FILE_BYTES);
    uint8_t *content = domain->promised[object];
    uint64_t size = 0;

    if (content == NULL)
        abort();
    if (domain->promised_at[object] == promise)
        return;
    memset(content, 0, MAX_FILE_BYTES);
    for (int i = 0; i < promise; i++) {
        const struct operation *operation = &domain->operations[i];

        if (operation->object != object)
            continue;
        if (operation->kind == OP_WRITE) {
            for (uint64_t k = 0; k < operation->length; k++)
                content[operation->offset + k] = pattern(domain, i, operation->offset + k);
            size = operation->size_after;
        } else if (operation->kind == OP_TRUNCATE) {
            size = operation->length;
            memset(content + size, 0, MAX_FILE_BYTES - size);
        }
    }
    domain->promised_at[object] = promise;
    domain->promised_size[object] = size;
}

/* True if an operation after the promise may have left this byte. */
static bool may_be_byte(const struct domain *domain, int object, int promise, size_t cut,
                        uint64_t offset, uint8_t byte)
{
    if (byte == 0 && offset >= domain->promised_size[object])
        return true;
    for (int i = promise + 1; i < domain->operation_count; i++) {
        const struct operation *operation = &domain->operations[i];

        if (operation->begin > cut)
            break;
        if (operation->object != object)
            continue;
        if (operation->kind == OP_WRITE && offset >= operation->offset &&
            offset - operation->offset < operation->length && byte == pattern(domain, i, offset))
            return true;
        if (operation->kind == OP_TRUNCATE && operation->length <= offset && byte == 0)
            return true;
    }
    return false;
}

static bool check_content(struct domain *domain, int object, size_t cut, const struct seen *seen,
                          struct finding *finding)
{
    int promise = last_promise(domain, object, cut);

    make_promised(domain, object, promise);
    uint64_t smallest = domain->promised_size[object], largest = smallest;
    const uint8_t *content = domain->promised[object];

    for (int i = promise + 1; i < domain->operation_count; i++) {
        const struct operation *operation = &domain->operations[i];

        if (operation->begin > cut)
            break;
        if (operation->object == object &&
            (operation->kind == OP_WRITE || operation->kind == OP_TRUNCATE)) {
            smallest = MIN(smallest, operation->size_after);
            largest = MAX(largest, operation->size_after);
        }
    }
    if (seen->size < smallest || seen->size > largest) {
        snprintf(finding->text, sizeof(finding->text),
                 "%s/%s: size %llu, must be %llu to %llu (promise %d)", domain->root, seen->path,
                 (unsigned long long)seen->size, (unsigned long long)smallest,
                 (unsigned long long)largest, promise);
        return false;
    }
    for (uint64_t i = 0; i < seen->size; i++) {
        if (seen->content[i] == content[i] && i < domain->promised_size[object])
            continue;
        if (!may_be_byte(domain, object, promise, cut, i, seen->content[i])) {
            snprintf(finding->text, sizeof(finding->text),
                     "%s/%s: byte %llu of %llu is 0x%02x, promised 0x%02x (promise %d, size %llu)",
                     domain->root, seen->path, (unsigned long long)i,
                     (unsigned long long)seen->size, seen->content[i], content[i], promise,
                     (unsigned long long)domain->promised_size[object]);
            return false;
        }
    }
    return true;
}

static bool check_names(struct domain *domain, int count, size_t cut, const struct tree *tree,
                        struct finding *finding)
{
    static struct names names;

    names_after(domain, count, &names);
    for (int i = 0; i < tree->count; i++) {
        const struct seen *seen = &tree->entries[i];
        int index = find_name(&names, seen->path);

        if (index < 0)
            return false;
        if (!seen->is_directory &&
            !check_content(domain, names.entries[index].object, cut, seen, finding))
            return false;
    }
    return true;
}

bool model_check(struct domain *domain, size_t cut, const struct tree *tree,
                 struct finding *finding)
{
    int first = names_promised(domain, cut), last = 0;
    uint64_t hash = 0;
    bool has_matched = false;

    while (last < domain->operation_count && domain->operations[last].begin <= cut)
        last++;
    for (int i = 0; i < tree->count; i++)
        hash += hash_name(tree->entries[i].path, tree->entries[i].is_directory);
    for (int i = first; i <= last; i++) {
        bool is_name = i > first && is_name_operation(&domain->operations[i - 1]);

        if (domain->name_hashes[i] != hash || (i > first && !is_name))
            continue;
        has_matched = true;
        if (check_names(domain, i, cut, tree, finding))
            return true;
    }
    if (!has_matched)
        snprintf(finding->text, sizeof(finding->text),
                 "%s: its %d names are those after none of operations %d to %d", domain->root,
                 tree->count, first, last);
    return false;
}
