/* SPDX-License-Identifier: MIT */
/*
 * New inodes: files, directories, symbolic links, device nodes.
 *
 * One transaction allocates the inode, writes it, and enters its name. The target of a long
 * symbolic link goes to a block of its own in the same transaction, through the journal.
 *
 * Locks: the directory's names_lock, exclusively; a handle inside. Callers: front ends.
 */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/change.h"
#include "inode/xattr_edit.h"
#include "map/edit.h"

#define TYPE_OF_MODE(mode) ((uint8_t)(((mode)&S_IFMT) >> 12)) /* DT_* are the mode's type bits */

/* A creation in progress. */
struct creation {
    struct inode *dir;
    const char *name;
    size_t name_length;
    const struct uext4_new_inode *what;
    uint32_t mode;
    const char *target; /* of a symbolic link */
    size_t target_length;
    /* The directory's default ACL, as it is on the disk and as an access ACL; see inherit_acl. */
    void *default_acl, *access_acl;
    uint32_t default_acl_bytes, access_acl_bytes; /* 0: none is to be set */
};

static void fill_fields(const struct creation *creation, uint32_t ino, struct inode_fields *fields)
{
    struct inode *dir = creation->dir;
    const struct superblock *sb = &dir->volume->sb;
    struct timespec now = change_now();

    memset(fields, 0, sizeof(*fields));
    fields->mode = creation->mode;
    fields->uid = creation->what->uid;
    fields->gid = creation->what->gid;
    mutex_lock(&dir->fields_mutex);
    if ((dir->fields.mode & S_ISGID) != 0) {
        fields->gid = dir->fields.gid;
        if (S_ISDIR(fields->mode))
            fields->mode |= S_ISGID;
    }
    if (inode_has_flag(dir, INODE_PROJECT_INHERIT)) {
        fields->project_id = dir->fields.project_id;
        if (S_ISDIR(fields->mode))
            fields->flags |= INODE_PROJECT_INHERIT;
    }
    if (S_ISDIR(fields->mode))
        fields->flags |= dir->fields.flags & INODE_CASEFOLD;
    fields->flags |= dir->fields.flags & INODE_SYNC;
    mutex_unlock(&dir->fields_mutex);
    fields->link_count = S_ISDIR(fields->mode) ? 2 : 1;
    fields->generation = (uint32_t)now.tv_nsec ^ ino * 2654435761u;
    fields->access_time = fields->modify_time = fields->change_time = now;
    fields->birth_time = now;
    fields->rdev_major = creation->what->rdev_major;
    fields->rdev_minor = creation->what->rdev_minor;
    if (S_ISREG(fields->mode) || S_ISDIR(fields->mode))
        map_init(sb, fields);
}

/* Puts the target of a symbolic link into its inode, or into a block. */
static int write_target(struct handle *handle, struct inode *inode, const struct creation *creation,
                        struct inode_fields *fields)
{
    const struct volume *volume = inode->volume;
    struct mapping mapping = {.file_block = 0, .length_blocks = 1, .kind = MAPPING_WRITTEN};
    struct space_run run;
    struct buffer *buffer;
    int error;

    (void)fields;
    error = space_reserve(volume->space, map_goal(inode, 0), 1, SPACE_METADATA, NULL, &run);
    if (error != 0)
        return error;
    error = space_claim(handle, volume->space, run);
    if (error != 0) {
        space_unreserve(volume->space, run);
        return error;
    }
    mapping.disk_block = run.block;
    error = map_insert(handle, inode, &mapping);
    if (error == 0)
        error = journal_create(handle, run.block, &buffer);
    if (error != 0)
        return error;
    memcpy(journal_data(handle, buffer), creation->target, creation->target_length);
    buffer_put(buffer);
    return 0;
}

/* ---- Default ACLs --------------------------------------------------------------------------- */

/* An ACL in the form that the disk has. */
static int convert_acl(const void *acl, size_t size, void **raw, uint32_t *raw_bytes)
{
    int64_t length = acl_to_disk(acl, size, NULL, 0);

    if (length <= 0)
        return length == 0 ? 0 : -EUCLEAN;
    *raw = malloc((size_t)length);
    if (*raw == NULL)
        return -ENOMEM;
    *raw_bytes = (uint32_t)acl_to_disk(acl, size, *raw, (size_t)length);
    return 0;
}

/* From the directory's default ACL: mode, access ACL and default ACL of what is created. */
static int derive_acls(struct creation *creation, void *acl, size_t size)
{
    int error = convert_acl(acl, size, &creation->default_acl, &creation->default_acl_bytes);

    if (error == -EUCLEAN)
        log_error(creation->dir->volume->log, "inode %u: bad default access control list",
                  creation->dir->ino);
    if (error != 0 || creation->default_acl_bytes == 0)
        return error;
    if (!S_ISDIR(creation->mode))
        creation->default_acl_bytes = 0;
    if (!acl_restrict(acl, size, &creation->mode))
        return 0;
    return convert_acl(acl, size, &creation->access_acl, &creation->access_acl_bytes);
}

/*
 * Prepares what the new inode inherits. The directory's names are locked, so that it happens before
 * or after a change of its ACL, either of which is right.
 */
static int inherit_acl(struct creation *creation)
{
    static const char name[] = "system.posix_acl_default";
    struct uext4_inode *dir = inode_to_public(creation->dir);
    size_t size = 2 * (size_t)creation->dir->volume->sb.block_bytes; /* short entries double */

    if (S_ISLNK(creation->mode))
        return 0;
    ssize_t length = uext4_getxattr(dir, name, NULL, 0);
    if (length == -ENODATA)
        return 0;
    if (length < 0)
        return (int)length;
    void *acl = malloc(size);
    if (acl == NULL)
        return -ENOMEM;
    length = uext4_getxattr(dir, name, acl, size);
    int error = length == -ENODATA ? 0 : length < 0 ? (int)length : 0;
    if (length > 0)
        error = derive_acls(creation, acl, (size_t)length);
    free(acl);
    return error;
}

static int set_acl(struct handle *handle, struct inode *inode, uint8_t index, const void *acl,
                   uint32_t acl_bytes)
{
    struct xattr_update update = {
        .index = index, .name = "", .value = acl, .value_bytes = acl_bytes, .now = change_now()};

    return acl_bytes == 0 ? 0 : xattr_update(handle, inode, &update);
}

static int set_acls(struct handle *handle, struct inode *inode, const struct creation *creation)
{
    int error = set_acl(handle, inode, XATTR_ACL_DEFAULT, creation->default_acl,
                        creation->default_acl_bytes);

    return error != 0 ? error
                      : set_acl(handle, inode, XATTR_ACL_ACCESS, creation->access_acl,
                                creation->access_acl_bytes);
}

static void free_acls(struct creation *creation)
{
    free(creation->default_acl);
    free(creation->access_acl);
}

/* Makes the inode; the name comes after. */
static int make_inode(struct handle *handle, const struct creation *creation, struct inode **inode)
{
    struct inode *dir = creation->dir;
    bool is_dir = S_ISDIR(creation->mode);
    struct inode_fields fields;
    uint32_t ino;
    int error = space_allocate_inode(handle, dir->volume->space, dir->ino, is_dir,
                                     dir->ino == UEXT4_ROOT_INO, &ino);

    if (error != 0)
        return error;
    fill_fields(creation, ino, &fields);
    bool is_fast = creation->target != NULL && creation->target_length < INODE_BLOCK_BYTES;
    if (creation->target != NULL) {
        fields.size = creation->target_length;
        if (is_fast)
            memcpy(fields.block, creation->target, creation->target_length);
        else
            map_init(&dir->volume->sb, &fields);
    }
    error = inode_create(handle, dir->table, ino, &fields, inode);
    if (error != 0)
        return error;
    if (is_dir)
        error = dir_init(handle, *inode, dir->ino);
    else if (creation->target != NULL && !is_fast)
        error = write_target(handle, *inode, creation, &fields);
    return error != 0 ? error : set_acls(handle, *inode, creation);
}

static uint32_t creation_credits(const struct creation *creation)
{
    struct inode *dir = creation->dir;
    bool has_acl = creation->default_acl_bytes != 0 || creation->access_acl_bytes != 0;

    /* The directory that gets the name, and the first block of a new one or of a link. */
    return dir_credits(dir) * 2 + SPACE_ALLOCATE_INODE_CREDITS + INODE_WRITE_CREDITS * 2 + 2 +
           (has_acl ? 2 * xattr_update_credits(dir) : 0);
}

/* Enters the new inode's name; the last step. */
static int enter_name(struct handle *handle, const struct creation *creation, struct inode *inode)
{
    struct inode *dir = creation->dir;
    int error = dir_insert(handle, dir, creation->name, creation->name_length, inode->ino,
                           TYPE_OF_MODE(creation->mode));

    if (error != 0)
        return error;
    if (S_ISDIR(creation->mode))
        change_add_links(dir, 1);
    change_touch(dir, change_now(), true);
    error = inode_write(handle, dir);
    if (error == 0) {
        inode_note_change(handle, dir, true);
        inode_note_change(handle, inode, true);
    }
    return error;
}

/*
 * Takes back an inode that got no name, in the same transaction: it loses its links, and the reaper
 * frees it.
 */
static int disown(struct handle *handle, struct inode *inode)
{
    mutex_lock(&inode->fields_mutex);
    inode->fields.link_count = 0;
    mutex_unlock(&inode->fields_mutex);
    return orphan_add(handle, inode);
}

/* One transaction, with the directory locked and the name known to be free. */
static int create_in_handle(const struct creation *creation, struct inode **result)
{
    struct inode *inode = NULL;
    struct handle handle;
    bool is_torn = false;
    int error = journal_start(creation->dir->volume->journal,
                              creation_credits(creation) + ORPHAN_CREDITS, &handle);

    if (error != 0)
        return error;
    error = make_inode(&handle, creation, &inode);
    if (error == 0)
        error = enter_name(&handle, creation, inode);
    if (error != 0 && inode != NULL) {
        is_torn = disown(&handle, inode) != 0;
        inode_put(inode);
        inode = NULL;
    }
    error = change_stop(&handle, error, is_torn || error == -EUCLEAN || error == -EIO);
    *result = inode;
    return error;
}

/* One try. */
static int create_locked(const struct creation *given, struct inode **result)
{
    struct creation creation = *given;
    int error = inherit_acl(&creation);

    if (error == 0)
        error = create_in_handle(&creation, result);
    free_acls(&creation);
    return error;
}

static int create(const struct creation *creation, struct uext4_inode **result)
{
    struct inode *dir = creation->dir, *inode = NULL;
    unsigned int tries = 0;
    uint32_t existing;
    int error;

    if (creation->name_length == 0)
        return -ENOENT;
    if (creation->name_length > UEXT4_NAME_MAX)
        return -ENAMETOOLONG;
    if (memchr(creation->name, '/', creation->name_length) != NULL ||
        memchr(creation->name, '\0', creation->name_length) != NULL)
        return -EINVAL;
    do {
        rwlock_write_lock(&dir->names_lock);
        error = change_check_dir(dir);
        if (error == 0)
            error = dir_lookup(dir, creation->name, creation->name_length, &existing);
        if (error == 0)
            error = -EEXIST;
        else if (error == -ENOENT && dir->fields.link_count > 0)
            error = S_ISDIR(creation->mode) && !change_has_room_for_link(dir)
                        ? -EMLINK
                        : create_locked(creation, &inode);
        rwlock_write_unlock(&dir->names_lock);
        change_reap(fs_of(dir));
    } while (change_can_retry(dir, error, &tries));
    if (error == -EAGAIN)
        error = -ENOSPC;
    if (error != 0)
        return error;
    if (result != NULL)
        *result = inode_to_public(inode);
    else
        inode_put(inode);
    return 0;
}

int uext4_create(struct uext4_inode *dir, const char *name, size_t length,
                 const struct uext4_new_inode *what, struct uext4_inode **result)
{
    struct creation creation = {.dir = inode_from_public(dir),
                                .name = name,
                                .name_length = length,
                                .what = what,
                                .mode = what->mode & (S_IFMT | 07777)};

    switch (creation.mode & S_IFMT) {
    case S_IFREG:
    case S_IFCHR:
    case S_IFBLK:
    case S_IFIFO:
    case S_IFSOCK:
        return create(&creation, result);
    default:
        return -EINVAL;
    }
}

int uext4_mkdir(struct uext4_inode *dir, const char *name, size_t length,
                const struct uext4_new_inode *what, struct uext4_inode **result)
{
    struct creation creation = {.dir = inode_from_public(dir),
                                .name = name,
                                .name_length = length,
                                .what = what,
                                .mode = S_IFDIR | (what->mode & 07777)};

    return create(&creation, result);
}

int uext4_symlink(struct uext4_inode *dir, const char *name, size_t length, const char *target,
                  size_t target_length, const struct uext4_new_inode *what,
                  struct uext4_inode **result)
{
    struct creation creation = {.dir = inode_from_public(dir),
                                .name = name,
                                .name_length = length,
                                .what = what,
                                .mode = S_IFLNK | 0777,
                                .target = target,
                                .target_length = target_length};

    if (target_length == 0)
        return -ENOENT;
    /* The target keeps its terminator inside a block, as the kernel writes it. */
    if (target_length >= creation.dir->volume->sb.block_bytes)
        return -ENAMETOOLONG;
    return create(&creation, result);
}
