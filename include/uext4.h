/* SPDX-License-Identifier: MIT */
/*
 * libuext4: ext2, ext3 and ext4 in user space.
 *
 * The contract of this header
 * ---------------------------
 * Errors      Functions return 0, a count or a negative errno. The values that every call may
 * return: -EIO         the device failed -EUCLEAN     a structure on the disk is corrupt -EBADMSG
 * a checksum on the disk does not match -EOPNOTSUPP  the image uses a feature that this version
 * does not support -ENOMEM      out of memory The first place that finds a problem also reports it
 * through the log function of the mount, once, with what was wrong and where. Threads     Every
 * function may be called from any thread at any time, on shared handles too, unless its comment
 * says otherwise. A handle must not be released while another thread still uses that same
 * reference. Ownership   A function that hands out a handle gives one reference; its partner
 * releases it. Buffers and strings stay the caller's; none is kept past the call. Units       Sizes
 * and offsets are in bytes unless the name says otherwise. Names       A name is a string of 1 to
 * 255 bytes without '/' and NUL; its encoding is the caller's. Lengths are given, so names need no
 * terminator. Durability  What a change survives is said at "Changes".
 */
#ifndef UEXT4_H
#define UEXT4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UEXT4_API __attribute__((visibility("default")))

#define UEXT4_VERSION_MAJOR 0
#define UEXT4_VERSION_MINOR 1
#define UEXT4_VERSION       "0.1.0"

#define UEXT4_NAME_MAX 255 /* bytes in a name; the format's limit */
#define UEXT4_ROOT_INO 2   /* inode number of the root directory; the format's constant */

struct uext4;       /* a mounted file system */
struct uext4_inode; /* a referenced inode of it */

/* The version of the library at run time, as "major.minor.patch". */
UEXT4_API const char *uext4_version(void);

/* ---- Log ------------------------------------------------------------------------------------ */

enum uext4_log_level {
    UEXT4_LOG_ERROR,   /* something failed, or the image is damaged */
    UEXT4_LOG_WARNING, /* worth knowing; the call goes on */
    UEXT4_LOG_INFO,    /* what was done, such as a journal replay */
    UEXT4_LOG_DEBUG,
};

/*
 * Receives a message, one line without a newline, valid during the call. Threads: called from
 * whichever thread meets the problem, maybe from several at once. Must not call back into the
 * library.
 */
typedef void (*uext4_log_fn)(void *context, enum uext4_log_level level, const char *message);

/* ---- Mounting ------------------------------------------------------------------------------- */

/* How the image file or device is opened. */
enum uext4_direct {
    UEXT4_DIRECT_AUTO, /* O_DIRECT where the device and the block size allow it */
    UEXT4_DIRECT_ON,   /* O_DIRECT, or fail with -EINVAL */
    UEXT4_DIRECT_OFF,  /* through the page cache of the host */
};

/* Options of a mount. Initialise with uext4_mount_options_init, then change fields. */
struct uext4_mount_options {
    bool is_read_only;        /* default true; the options ro and rw */
    bool skip_journal_replay; /* `noload`: show the image without what its journal holds */
    bool skip_checksums;      /* `nochecksum`: read on past metadata checksums that do not match */
    enum uext4_direct direct; /* default UEXT4_DIRECT_AUTO; `direct=` in the spec wins */
    uint32_t commit_interval_seconds; /* a change is durable at this age at the latest; 0: 5 */
    uint64_t superblock;         /* file-system block of a backup superblock, in units of 1 KiB as
                                    mount's `sb=` has it; 0: the primary one */
    size_t metadata_cache_bytes; /* bound of the metadata cache; default 32 MiB */
    uext4_log_fn log;            /* may be NULL: messages are dropped */
    void *log_context;
    enum uext4_log_level log_level; /* most detailed level wanted; default UEXT4_LOG_WARNING */
};

UEXT4_API void uext4_mount_options_init(struct uext4_mount_options *options);

/*
 * Sets fields from a comma-separated list in the form that `mount -o` takes: ro, rw, noload (or
 * norecovery), nochecksum, direct=auto|on|off, sb=N, cache=SIZE (with K, M or G). Other options
 * that kernel ext4 or mount(8) knows are accepted and change nothing. Returns 0, or -EINVAL after
 * writing what is wrong to `error`, always terminated.
 */
UEXT4_API int uext4_mount_options_parse(struct uext4_mount_options *options, const char *list,
                                        char *error, size_t error_size);

/*
 * Opens the file system on the device that `spec` names (see uext4-device-spec(7): a path, or
 * "FILTER(key=value,...):DRIVER:PATH,offset=N" and the like).
 *
 * Locks: takes a shared lock on the image for reading, an exclusive one for writing, held until
 * unmount; several readers may open one image, and nobody else while a writer has it (-EBUSY).
 * Journal: if the image needs recovery, for reading its journal is replayed in memory and the
 * image's bytes stay as they are; for writing it is replayed into the image, and orphans are worked
 * off. External journals are refused (-EOPNOTSUPP), for reading only if they need a replay that is
 * not skipped. Writing also refuses (-EOPNOTSUPP, the feature's name in the log) what could not be
 * kept right: inline_data, quota, encrypt, verity, mmp, pending fast commits, entries in an orphan
 * file. Blocks on the device. Reads no bitmaps, and costs no memory in proportion to the image.
 * Returns 0, or also -ENOENT, -EACCES, -EINVAL (not an ext file system, or a bad spec), -EBUSY.
 */
UEXT4_API int uext4_mount(const char *spec, const struct uext4_mount_options *options,
                          struct uext4 **fs);

/*
 * Closes the file system and its device. All inodes must have been released, and no other call may
 * be running. Every change is durable and the image clean when it returns, but for errors, which
 * are logged: then a later mount replays what there is. The lock on the image is gone. Always frees
 * `fs`.
 */
UEXT4_API void uext4_unmount(struct uext4 *fs);

/* ---- What the file system is ---------------------------------------------------------------- */

/* The state of the journal, as found when the file system was opened. */
enum uext4_journal_state {
    UEXT4_JOURNAL_NONE,     /* no journal */
    UEXT4_JOURNAL_CLEAN,    /* nothing to replay */
    UEXT4_JOURNAL_REPLAYED, /* was dirty; this mount shows the state after the replay */
    UEXT4_JOURNAL_SKIPPED,  /* is dirty, and the replay was skipped */
    UEXT4_JOURNAL_EXTERNAL, /* lives on another device */
};

struct uext4_info {
    uint8_t uuid[16];
    char volume_name[17];  /* terminated */
    char last_mounted[65]; /* terminated */
    uint32_t revision;     /* 0: original, 1: dynamic */
    uint32_t creator_os;   /* 0: Linux, 1: Hurd, 3: FreeBSD, 4: Lites */
    uint32_t block_bytes;
    uint32_t cluster_bytes; /* = block_bytes without bigalloc */
    uint32_t inode_bytes;   /* on the disk */
    uint32_t group_descriptor_bytes;
    uint64_t block_count;
    uint64_t free_block_count;
    uint64_t reserved_block_count;
    uint64_t overhead_block_count; /* as the superblock has it; 0: not recorded */
    uint64_t inode_count;
    uint64_t free_inode_count;
    uint32_t first_ino; /* first inode not reserved */
    uint32_t first_data_block;
    uint32_t blocks_per_group;
    uint32_t clusters_per_group;
    uint32_t inodes_per_group;
    uint32_t group_count;
    uint32_t flex_group_count; /* groups in a flex_bg; 1 without it */
    uint32_t feature_compat;   /* bits as on the disk; uext4_feature_name names them */
    uint32_t feature_incompat;
    uint32_t feature_ro_compat;
    uint16_t state; /* bit 0 clean, bit 1 errors, bit 2 orphans being processed */
    uint16_t mount_count;
    uint16_t max_mount_count; /* 0xffff or 0: no limit */
    uint32_t error_count;
    uint8_t default_hash_version;
    uint8_t checksum_type; /* 1: crc32c, with metadata_csum */
    uint16_t encoding;     /* casefold; 1: utf8 12.1 */
    time_t created;        /* mkfs time */
    time_t mounted;
    time_t written;
    time_t checked;
    uint64_t kib_written;
    uint32_t default_mount_options; /* bits as on the disk */

    enum uext4_journal_state journal_state;
    uint64_t journal_block_count;
    uint32_t journal_first_sequence; /* of the log's tail, when opened */
    uint32_t journal_compat, journal_incompat, journal_ro_compat;
    uint32_t replayed_transactions;
    uint64_t replayed_blocks; /* distinct blocks that this mount reads from the journal */
    uint64_t revoked_blocks;
    uint32_t pending_fast_commit_blocks; /* fast commits found and not replayed */
    uint32_t orphan_list_head;           /* first inode of the orphan list; 0: none */
    bool has_orphan_file_entries;        /* the orphan file is marked as in use */

    uint64_t device_bytes;
    bool is_direct; /* the device is open with O_DIRECT */
    bool is_read_only;
};

UEXT4_API void uext4_get_info(struct uext4 *fs, struct uext4_info *info);

enum uext4_feature_set {
    UEXT4_FEATURE_COMPAT,
    UEXT4_FEATURE_INCOMPAT,
    UEXT4_FEATURE_RO_COMPAT,
    UEXT4_FEATURE_JOURNAL_COMPAT,
    UEXT4_FEATURE_JOURNAL_INCOMPAT,
};

/*
 * The name that mke2fs and dumpe2fs give to a feature bit (0 to 31), or NULL for an unknown one.
 */
UEXT4_API const char *uext4_feature_name(enum uext4_feature_set set, unsigned int bit);

struct uext4_statfs {
    uint32_t block_bytes;
    uint64_t block_count; /* data blocks: all but the overhead of the format */
    uint64_t free_blocks;
    uint64_t available_blocks; /* free ones less those reserved for root */
    uint64_t inode_count;
    uint64_t free_inodes;
    uint64_t fsid;
    uint32_t name_max;
};

/* Usage as statfs(2) counts it. The overhead of the format is computed once, at the first call. */
UEXT4_API int uext4_statfs(struct uext4 *fs, struct uext4_statfs *statfs);

/* What one block group's descriptor says. */
struct uext4_group {
    uint64_t first_block, block_count;
    uint64_t block_bitmap, inode_bitmap, inode_table; /* disk blocks */
    uint32_t free_clusters, free_inodes, used_directories, unused_inodes;
    bool is_block_uninit, is_inode_uninit, is_inode_table_zeroed;
    bool has_superblock;
};

/* Returns also -ERANGE for a group past the last. */
UEXT4_API int uext4_get_group(struct uext4 *fs, uint32_t group, struct uext4_group *result);

/* ---- Inodes --------------------------------------------------------------------------------- */

/*
 * Gives a reference to inode `ino`. Returns also -ENOENT (number out of range), -ESTALE (the inode
 * is not in use).
 */
UEXT4_API int uext4_inode_get(struct uext4 *fs, uint64_t ino, struct uext4_inode **inode);

/* One more reference to an inode that the caller holds. */
UEXT4_API struct uext4_inode *uext4_inode_ref(struct uext4_inode *inode);

/* Releases a reference; NULL is allowed. */
UEXT4_API void uext4_inode_put(struct uext4_inode *inode);

UEXT4_API uint64_t uext4_inode_number(const struct uext4_inode *inode);

/*
 * Looks a name up in a directory; "." and ".." work. Returns also -ENOTDIR, -ENOENT,
 * -ENAMETOOLONG, -ENOKEY (the directory is encrypted).
 */
UEXT4_API int uext4_lookup(struct uext4_inode *dir, const char *name, size_t name_length,
                           struct uext4_inode **inode);

/* Walk flags. */
#define UEXT4_WALK_NOFOLLOW 0x1u /* do not follow a symbolic link at the last component */

/*
 * Walks a path from the root directory. Symbolic links are followed inside the file system (a
 * leading '/' means its root, ".." stops there), 40 of them at most (-ELOOP).
 */
UEXT4_API int uext4_walk(struct uext4 *fs, const char *path, unsigned int flags,
                         struct uext4_inode **inode);

struct uext4_stat {
    uint64_t ino;
    uint32_t generation;
    uint32_t mode; /* type and permissions, S_IF* and below */
    uint32_t uid, gid;
    uint32_t link_count;
    uint32_t rdev_major, rdev_minor; /* of device nodes */
    uint64_t size;
    uint64_t allocated_sectors; /* 512-byte units, as st_blocks */
    uint32_t block_bytes;
    struct timespec access_time, modify_time, change_time;
    struct timespec birth_time; /* 0 where the inode has no room for it */
    uint32_t flags;             /* as FS_IOC_GETFLAGS gives them, FS_*_FL and the on-disk ones */
    uint32_t project_id;
    uint32_t direct_memory_alignment; /* for UEXT4_OPEN_DIRECT reads that copy nothing; */
    uint32_t direct_offset_alignment; /* others work and are slower */
};

UEXT4_API int uext4_stat(struct uext4_inode *inode, struct uext4_stat *stat);

/*
 * Copies the target of a symbolic link, not terminated, at most `size` bytes of it. Returns the
 * length of the whole target, or also -EINVAL (not a symbolic link), -ENOKEY.
 */
UEXT4_API ssize_t uext4_readlink(struct uext4_inode *inode, char *buffer, size_t size);

/* ---- Directories ---------------------------------------------------------------------------- */

struct uext4_dirent {
    uint64_t ino;
    uint64_t next_cookie; /* pass it to uext4_readdir to go on behind this entry */
    uint8_t type;         /* DT_* as in <dirent.h>; DT_UNKNOWN where the format has none */
    uint8_t name_length;
    const char *name; /* not terminated; valid during the call */
};

/* Takes one entry. Returns true to go on, false to stop. May call the library. */
typedef bool (*uext4_dirent_fn)(void *context, const struct uext4_dirent *entry);

/*
 * Calls `fn` for the entries of a directory behind `cookie`, "." and ".." included; 0 starts. An
 * entry at which `fn` returns false counts as not taken: its own cookie comes again when the
 * reading goes on from the entry before it. Returns 0 at the end or when stopped, or also
 * -ENOTDIR, -ENOKEY (encrypted).
 */
UEXT4_API int uext4_readdir(struct uext4_inode *dir, uint64_t cookie, uext4_dirent_fn fn,
                            void *context);

/* ---- Data ----------------------------------------------------------------------------------- */

/*
 * Reads up to `length` bytes at `offset` of a regular file. Holes and unwritten ranges read as
 * zeros. Returns the count, short only at the end of the file, 0 behind it; or also -EISDIR,
 * -EINVAL (not a regular file), -ENOKEY (encrypted), -EIO with nothing said about the buffer.
 * Holds no lock while the device works: reads of one file run in parallel. A buffer, offset and
 * length aligned as uext4_stat says are read into the buffer without a copy.
 */
UEXT4_API ssize_t uext4_read(struct uext4_inode *inode, void *buffer, size_t length,
                             uint64_t offset);
UEXT4_API ssize_t uext4_readv(struct uext4_inode *inode, const struct iovec *iov, int iov_count,
                              uint64_t offset);

enum uext4_extent_kind {
    UEXT4_EXTENT_HOLE,
    UEXT4_EXTENT_WRITTEN,
    UEXT4_EXTENT_UNWRITTEN, /* allocated, reads as zeros */
    UEXT4_EXTENT_INLINE,    /* the data lies in the inode */
};

struct uext4_extent {
    enum uext4_extent_kind kind;
    uint64_t offset;        /* in the file */
    uint64_t length;        /* a multiple of the block size; but for INLINE */
    uint64_t device_offset; /* in the file system; 0 for HOLE and INLINE */
};

/*
 * The extent that covers `offset`, cut so that it starts there. Neighbours that touch on the disk
 * too are joined. A hole is at most as long as to the next extent or to the largest file. Works
 * on directories and symbolic links too. Returns also -ENXIO (no more extents at or past it, though
 * the file may end in a hole).
 */
UEXT4_API int uext4_map(struct uext4_inode *inode, uint64_t offset, struct uext4_extent *extent);

/*
 * As lseek(2) with SEEK_DATA and SEEK_HOLE: unwritten ranges count as holes. Returns the offset, or
 * also -ENXIO.
 */
UEXT4_API int64_t uext4_seek_data(struct uext4_inode *inode, uint64_t offset);
UEXT4_API int64_t uext4_seek_hole(struct uext4_inode *inode, uint64_t offset);

/* ---- Extended attributes -------------------------------------------------------------------- */

/*
 * Names carry their prefix: user., trusted., security., system.posix_acl_access and so on. ACLs
 * come in the form of the kernel's xattr interface (posix_acl_xattr, version 2).
 *
 * Copies the value if `size` is large enough; with size 0 it only tells the length. Returns the
 * length, or also -ENODATA, -ERANGE.
 */
UEXT4_API ssize_t uext4_getxattr(struct uext4_inode *inode, const char *name, void *buffer,
                                 size_t size);

/* Copies the names, each terminated by NUL. Sizes and errors as uext4_getxattr. */
UEXT4_API ssize_t uext4_listxattr(struct uext4_inode *inode, char *buffer, size_t size);

/* ---- Changes -------------------------------------------------------------------------------- */

/*
 * For file systems mounted with is_read_only false. Every call here may also return -EROFS (mounted
 * read-only, or changes were stopped after an error on the device or in the image), -ENOSPC.
 *
 * Each call happens whole or not at all, after a crash too. It is durable after the next
 * uext4_fsync of the inode (for names: of the directory), uext4_sync or uext4_unmount, or when the
 * commit interval has passed.
 *
 * The library checks no permissions; the caller does. Times are set from the clock.
 */

/* What a new inode is. */
struct uext4_new_inode {
    uint32_t mode;     /* type and permissions; the type is given by the call where it can be */
    uint32_t uid, gid; /* gid gives way to the directory's if that has S_ISGID */
    uint32_t rdev_major, rdev_minor; /* of device nodes */
};

/*
 * Makes a file, device node, FIFO or socket (by the type in `mode`), a directory, or a symbolic
 * link, and gives a reference to it; `inode` may be NULL. Return also -EEXIST, -ENOENT (the
 * directory was removed), -EMLINK, -ENAMETOOLONG.
 *
 * Files and directories inherit the directory's default ACL: it bounds the permissions asked for,
 * and becomes their access ACL, with those permissions, unless it says no more than they do;
 * directories get it as their default ACL too. No umask is applied here: a caller with a umask
 * applies it only if the directory has no default ACL.
 */
UEXT4_API int uext4_create(struct uext4_inode *dir, const char *name, size_t name_length,
                           const struct uext4_new_inode *what, struct uext4_inode **inode);
UEXT4_API int uext4_mkdir(struct uext4_inode *dir, const char *name, size_t name_length,
                          const struct uext4_new_inode *what, struct uext4_inode **inode);
UEXT4_API int uext4_symlink(struct uext4_inode *dir, const char *name, size_t name_length,
                            const char *target, size_t target_length,
                            const struct uext4_new_inode *what, struct uext4_inode **inode);

/* Gives an inode another name. -EPERM for a directory, -EMLINK past 65000. */
UEXT4_API int uext4_link(struct uext4_inode *inode, struct uext4_inode *dir, const char *name,
                         size_t name_length);

/*
 * Take a name away. An inode without names lives on until its last reference is put, and is freed
 * then, after a crash too. -EISDIR and -ENOTDIR, -ENOTEMPTY, -EBUSY (the root).
 */
UEXT4_API int uext4_unlink(struct uext4_inode *dir, const char *name, size_t name_length);
UEXT4_API int uext4_rmdir(struct uext4_inode *dir, const char *name, size_t name_length);

#define UEXT4_RENAME_NOREPLACE 0x1u /* -EEXIST if the new name exists */
#define UEXT4_RENAME_EXCHANGE  0x2u /* both exist, and change places */

/* As rename(2) and renameat2(2). -EINVAL for a directory into itself or below. */
UEXT4_API int uext4_rename(struct uext4_inode *old_dir, const char *old_name,
                           size_t old_name_length, struct uext4_inode *new_dir,
                           const char *new_name, size_t new_name_length, unsigned int flags);

/*
 * Writes at `offset`, past the end too: what lies between is a hole. Returns the count, less than
 * asked for only when space ran out or the device failed after some of it. Writes that do not
 * overlap run in parallel; a write is seen whole or not at all by reads of the same range. Also
 * -EFBIG, -EISDIR.
 */
UEXT4_API ssize_t uext4_write(struct uext4_inode *inode, const void *buffer, size_t length,
                              uint64_t offset);
UEXT4_API ssize_t uext4_writev(struct uext4_inode *inode, const struct iovec *iov, int iov_count,
                               uint64_t offset);

/* Sets the size of a regular file. Also -EFBIG. */
UEXT4_API int uext4_truncate(struct uext4_inode *inode, uint64_t size);

#define UEXT4_SET_MODE        0x01u /* permissions only */
#define UEXT4_SET_UID         0x02u
#define UEXT4_SET_GID         0x04u
#define UEXT4_SET_ACCESS_TIME 0x08u
#define UEXT4_SET_MODIFY_TIME 0x10u
#define UEXT4_SET_CHANGE_TIME 0x20u /* else it is now */

/* Sets those attributes that `mask` names from the fields of `stat`. */
UEXT4_API int uext4_set_attributes(struct uext4_inode *inode, const struct uext4_stat *stat,
                                   unsigned int mask);

#define UEXT4_XATTR_CREATE  0x1 /* -EEXIST if there is one of that name; as XATTR_CREATE */
#define UEXT4_XATTR_REPLACE 0x2 /* -ENODATA if there is none; as XATTR_REPLACE */

/*
 * Sets an extended attribute, or takes one away (-ENODATA if there is none). -ENOSPC if it fits
 * neither the inode nor the attribute block, -ERANGE for a name of more than 255 bytes with its
 * prefix, -E2BIG for a value of more than 64 KiB, -EOPNOTSUPP for a name without a namespace that
 * can be set, and for an attribute whose value lies in an inode of its own; -EPERM on an inode that
 * is immutable or append-only.
 *
 * ACLs come in the form of the kernel's xattr interface; -EINVAL for one that is not valid,
 * -EOPNOTSUPP on symbolic links, -EACCES for a default ACL on what is no directory. An access ACL
 * sets the permissions too, and is not kept if it says no more than those. An ACL of no bytes or no
 * entries is one taken away, as is one that was not there; flags are ignored with ACLs.
 */
UEXT4_API int uext4_setxattr(struct uext4_inode *inode, const char *name, const void *value,
                             size_t size, int flags);
UEXT4_API int uext4_removexattr(struct uext4_inode *inode, const char *name);

/*
 * Makes all changes of an inode durable, or with `data_only` those that its data needs. Callers
 * share commits. Returns also the error that kept an earlier change from the disk.
 */
UEXT4_API int uext4_fsync(struct uext4_inode *inode, bool data_only);

/* Makes all changes of the file system durable. */
UEXT4_API int uext4_sync(struct uext4 *fs);

/* ---- Recovery ------------------------------------------------------------------------------- */

struct uext4_recovery {
    bool was_needed; /* the journal had something to replay */
    uint32_t transactions;
    uint64_t blocks_written;
    uint64_t blocks_revoked;
    bool had_damage; /* damaged blocks were left out; the file system is marked for
                        a full check */
    uint32_t pending_fast_commit_blocks; /* found, and left as they are */
    uint32_t orphan_list_head;           /* orphans found, and left as they are */
    bool has_orphan_file_entries;
};

/*
 * Replays the journal of an image into the image and marks it clean. Takes an exclusive lock
 * (-EBUSY if anybody has the image open). Durable when it returns 0. A crash in the middle leaves
 * an image that a later recovery completes. Refuses (-EOPNOTSUPP) an image with pending fast
 * commits or an external journal, without writing to it. `report` may be NULL.
 */
UEXT4_API int uext4_recover(const char *spec, const struct uext4_mount_options *options,
                            struct uext4_recovery *report);

#ifdef __cplusplus
}
#endif

#endif /* UEXT4_H */
