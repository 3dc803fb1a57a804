/* SPDX-License-Identifier: MIT */
/*
 * Inodes. A field behind the first 128 bytes exists only if the inode's own extra size covers it;
 * everything else there may be extended attributes. Pure functions without locks, called by the
 * inode layer; `raw` is always sb->inode_bytes long.
 */
#include "format/inode.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/byteorder.h"
#include "base/compiler.h"
#include "format/crc.h"

#define CREATOR_LINUX 0
#define CREATOR_HURD  1

#define BASE_BYTES       128
#define SECTOR_BITS      9
#define DIRECT_BLOCKS    12
#define NANOSECONDS      1000000000u
#define EXTRA_EPOCH_MASK 0x3
#define EXTRA_EPOCH_BITS 2

struct disk_inode {
    le16 mode;
    le16 uid_low;
    le32 size_low;
    le32 access_time;
    le32 change_time;
    le32 modify_time; /* 0x10 */
    le32 deletion_time;
    le16 gid_low;
    le16 link_count;
    le32 blocks_low;
    le32 flags; /* 0x20 */
    le32 version_low;
    uint8_t block[INODE_BLOCK_BYTES];
    le32 generation; /* 0x64 */
    le32 xattr_block_low;
    le32 size_high;
    le32 fragment;    /* 0x70 */
    le16 blocks_high; /* Linux, from here to the checksum */
    le16 xattr_block_high;
    le16 uid_high;
    le16 gid_high;
    le16 checksum_low;
    le16 reserved;
    le16 extra_isize; /* 0x80 */
    le16 checksum_high;
    le32 change_time_extra;
    le32 modify_time_extra;
    le32 access_time_extra;
    le32 birth_time; /* 0x90 */
    le32 birth_time_extra;
    le32 version_high;
    le32 project_id;
};
_Static_assert(sizeof(struct disk_inode) == 160, "inode");
_Static_assert(offsetof(struct disk_inode, generation) == 0x64, "inode generation");
_Static_assert(offsetof(struct disk_inode, checksum_low) == 0x7c, "inode checksum");
_Static_assert(offsetof(struct disk_inode, extra_isize) == BASE_BYTES, "inode extra size");

/* True if the extra part is long enough to hold the field. */
#define COVERS(extra_isize, field)                                                      \
    (offsetof(struct disk_inode, field) + sizeof(((struct disk_inode *)NULL)->field) <= \
     (size_t)BASE_BYTES + (extra_isize))

/* The extra size as the inode says it, 0 where there is none. */
static uint32_t stored_extra_isize(const struct superblock *sb, const void *raw)
{
    if (sb->inode_bytes <= BASE_BYTES)
        return 0;
    return le16_at((const uint8_t *)raw + offsetof(struct disk_inode, extra_isize));
}

uint32_t inode_checksum_seed(const struct superblock *sb, uint32_t ino, uint32_t generation)
{
    le32 number = le32_make(ino), disk_generation = le32_make(generation);
    uint32_t crc = crc32c(sb->checksum_seed, &number, sizeof(number));
    return crc32c(crc, &disk_generation, sizeof(disk_generation));
}

/* An inode of a zeroed table, never written since. */
static bool is_all_zero(const void *raw, size_t length)
{
    const uint8_t *bytes = raw;
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* The upper half exists only if the extra size covers it. */
static bool has_checksum_high(const struct superblock *sb, const void *raw)
{
    return sb->inode_bytes > BASE_BYTES && COVERS(stored_extra_isize(sb, raw), checksum_high);
}

static uint32_t compute_checksum(const struct superblock *sb, uint32_t ino, const void *raw)
{
    static const uint8_t zero[sizeof(le16)];
    const size_t low = offsetof(struct disk_inode, checksum_low);
    const size_t high = offsetof(struct disk_inode, checksum_high);
    const uint8_t *bytes = raw;
    uint32_t generation = le32_at(bytes + offsetof(struct disk_inode, generation));
    uint32_t crc = inode_checksum_seed(sb, ino, generation);

    crc = crc32c(crc, bytes, low);
    crc = crc32c(crc, zero, sizeof(zero));
    size_t done = low + sizeof(zero);
    if (has_checksum_high(sb, raw)) {
        crc = crc32c(crc, bytes + done, high - done);
        crc = crc32c(crc, zero, sizeof(zero));
        done = high + sizeof(zero);
    }
    return crc32c(crc, bytes + done, sb->inode_bytes - done);
}

bool inode_checksum_matches(const struct superblock *sb, uint32_t ino, const void *raw)
{
    const struct disk_inode *disk = raw;

    if (!sb->has_metadata_csum || sb->creator_os != CREATOR_LINUX)
        return true;
    uint32_t crc = compute_checksum(sb, ino, raw), expected = le16_get(disk->checksum_low);
    if (has_checksum_high(sb, raw))
        expected |= (uint32_t)le16_get(disk->checksum_high) << 16;
    else
        crc &= 0xffff;
    return crc == expected || is_all_zero(raw, sb->inode_bytes);
}

void inode_set_checksum(const struct superblock *sb, uint32_t ino, void *raw)
{
    struct disk_inode *disk = raw;

    if (!sb->has_metadata_csum || sb->creator_os != CREATOR_LINUX)
        return;
    uint32_t crc = compute_checksum(sb, ino, raw);
    disk->checksum_low = le16_make((uint16_t)crc);
    if (has_checksum_high(sb, raw))
        disk->checksum_high = le16_make((uint16_t)(crc >> 16));
}

/* The extra bits extend the signed seconds by two bits and hold the nanoseconds. */
static struct timespec make_time(le32 seconds, bool has_extra, le32 extra_field)
{
    struct timespec time = {.tv_sec = (int32_t)le32_get(seconds)};
    if (has_extra) {
        uint32_t extra = le32_get(extra_field);
        uint32_t nanoseconds = extra >> EXTRA_EPOCH_BITS;
        time.tv_sec += (time_t)((uint64_t)(extra & EXTRA_EPOCH_MASK) << 32);
        time.tv_nsec = nanoseconds < NANOSECONDS ? nanoseconds : 0;
    }
    return time;
}

static void parse_times(const struct disk_inode *disk, struct inode_fields *result)
{
    uint32_t extra = result->extra_isize;
    result->access_time = make_time(disk->access_time, COVERS(extra, access_time_extra),
                                    disk->access_time_extra);
    result->modify_time = make_time(disk->modify_time, COVERS(extra, modify_time_extra),
                                    disk->modify_time_extra);
    result->change_time = make_time(disk->change_time, COVERS(extra, change_time_extra),
                                    disk->change_time_extra);
    if (COVERS(extra, birth_time))
        result->birth_time = make_time(disk->birth_time, COVERS(extra, birth_time_extra),
                                       disk->birth_time_extra);
}

static void parse_owner(const struct superblock *sb, const struct disk_inode *disk,
                        struct inode_fields *result)
{
    result->uid = le16_get(disk->uid_low);
    result->gid = le16_get(disk->gid_low);
    if (sb->creator_os == CREATOR_LINUX || sb->creator_os == CREATOR_HURD) {
        result->uid |= (uint32_t)le16_get(disk->uid_high) << 16;
        result->gid |= (uint32_t)le16_get(disk->gid_high) << 16;
    }
    if (superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_PROJECT) &&
        COVERS(result->extra_isize, project_id))
        result->project_id = le32_get(disk->project_id);
}

static void parse_sizes(const struct superblock *sb, const struct disk_inode *disk,
                        struct inode_fields *result)
{
    bool is_linux = sb->creator_os == CREATOR_LINUX;

    result->size = le32_get(disk->size_low);
    if (S_ISREG(result->mode) ||
        (S_ISDIR(result->mode) && superblock_has_incompat(sb, FEATURE_INCOMPAT_LARGEDIR)))
        result->size |= (uint64_t)le32_get(disk->size_high) << 32;

    result->allocated_sectors = le32_get(disk->blocks_low);
    if (superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_HUGE_FILE) && is_linux) {
        result->allocated_sectors |= (uint64_t)le16_get(disk->blocks_high) << 32;
        if ((result->flags & INODE_HUGE_FILE) != 0)
            result->allocated_sectors <<= sb->block_bits - SECTOR_BITS;
    }

    result->xattr_block = le32_get(disk->xattr_block_low);
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT) && is_linux)
        result->xattr_block |= (uint64_t)le16_get(disk->xattr_block_high) << 32;

    /* The Hurd keeps something else in the place of the version. */
    if (sb->creator_os != CREATOR_HURD)
        result->version = le32_get(disk->version_low);
    if (COVERS(result->extra_isize, version_high))
        result->version |= (uint64_t)le32_get(disk->version_high) << 32;
}

/* The older encoding has 8 bits each, the newer one 12 and 20. */
static void parse_device(struct inode_fields *result)
{
    uint32_t old_form = le32_at(result->block), new_form = le32_at(result->block + sizeof(le32));
    if (old_form != 0) {
        result->rdev_major = old_form >> 8 & 0xff;
        result->rdev_minor = old_form & 0xff;
    } else {
        result->rdev_major = new_form >> 8 & 0xfff;
        result->rdev_minor = (new_form & 0xff) | (new_form >> 12 & 0xfff00);
    }
}

static bool is_type_known(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFCHR:
    case S_IFBLK:
    case S_IFIFO:
    case S_IFSOCK:
        return true;
    default:
        return mode == 0;
    }
}

/* File blocks that an inode's map can reach. File blocks have 32 bits in either kind of map. */
static uint64_t reachable_blocks(const struct superblock *sb, bool has_extents)
{
    const uint64_t file_blocks_max = (uint64_t)UINT32_MAX + 1;
    if (has_extents)
        return file_blocks_max;
    uint64_t numbers = sb->block_bytes / sizeof(le32);
    uint64_t blocks = DIRECT_BLOCKS + numbers + numbers * numbers + numbers * numbers * numbers;
    return MIN(blocks, file_blocks_max);
}

/* File blocks that an i_blocks of 32 bits can count together with those of the block map. */
static uint64_t countable_blocks(const struct superblock *sb, bool has_extents)
{
    uint64_t blocks = UINT32_MAX >> (sb->block_bits - SECTOR_BITS);
    uint64_t numbers = sb->block_bytes / sizeof(le32);

    if (has_extents)
        return blocks;
    /* A block of the map per `numbers` blocks at each level, and one unfilled at each. */
    blocks -= 4;
    return blocks - (blocks + numbers - 1) / numbers;
}

uint64_t inode_max_size(const struct superblock *sb, bool has_extents)
{
    bool has_huge_file = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_HUGE_FILE) &&
                         sb->creator_os == CREATOR_LINUX;
    uint64_t blocks = reachable_blocks(sb, has_extents);

    /* One less than extents can name, so that the number of blocks has 32 bits, too. */
    if (has_extents)
        blocks--;
    if (!has_huge_file)
        blocks = MIN(blocks, countable_blocks(sb, has_extents));
    return MIN(blocks, (uint64_t)INT64_MAX >> sb->block_bits) << sb->block_bits;
}

static const char *check_fields(const struct superblock *sb, const struct inode_fields *inode)
{
    if (!is_type_known(inode->mode))
        return "inode of an unknown type";
    if (inode->size > INT64_MAX)
        return "inode with a negative size";
    if (inode->size > reachable_blocks(sb, (inode->flags & INODE_EXTENTS) != 0) << sb->block_bits)
        return "inode larger than its block map can reach";
    if (inode->xattr_block != 0 &&
        (inode->xattr_block <= sb->first_data_block || inode->xattr_block >= sb->block_count))
        return "attribute block outside the file system";
    return NULL;
}

const char *inode_parse(const struct superblock *sb, const void *raw, struct inode_fields *result)
{
    struct disk_inode disk = {0}; /* short inodes leave the later fields 0 */
    memcpy(&disk, raw, MIN(sb->inode_bytes, sizeof(disk)));

    *result = (struct inode_fields){
        .mode = le16_get(disk.mode),
        .link_count = le16_get(disk.link_count),
        .flags = le32_get(disk.flags),
        .generation = le32_get(disk.generation),
        .deletion_time = le32_get(disk.deletion_time),
    };
    bool is_in_use = result->mode != 0 || result->link_count != 0;
    uint32_t extra_isize = stored_extra_isize(sb, raw);
    if (extra_isize > sb->inode_bytes - BASE_BYTES || extra_isize % 4 != 0) {
        if (is_in_use)
            return "inode's extra size out of range";
        extra_isize = 0;
    }
    result->extra_isize = extra_isize;
    memcpy(result->block, disk.block, sizeof(result->block));
    parse_owner(sb, &disk, result);
    parse_sizes(sb, &disk, result);
    parse_times(&disk, result);
    if (S_ISCHR(result->mode) || S_ISBLK(result->mode))
        parse_device(result);
    return is_in_use ? check_fields(sb, result) : NULL;
}

bool inode_is_fast_symlink(const struct superblock *sb, const struct inode_fields *inode)
{
    if (!S_ISLNK(inode->mode) || (inode->flags & INODE_INLINE_DATA) != 0 || inode->size == 0 ||
        inode->size >= INODE_BLOCK_BYTES)
        return false;
    /* Where values of attributes may lie in inodes, these count as blocks of the link, too. */
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_EA_INODE))
        return true;
    uint64_t xattr_sectors = inode->xattr_block != 0 ? sb->cluster_bytes >> SECTOR_BITS : 0;
    return inode->allocated_sectors == xattr_sectors;
}

/* ---- Writing -------------------------------------------------------------------------------- */

uint32_t inode_init_raw(const struct superblock *sb, void *raw)
{
    uint32_t extra_isize = sb->inode_bytes > BASE_BYTES ? sb->want_extra_isize : 0;
    struct disk_inode *disk = raw;

    memset(raw, 0, sb->inode_bytes);
    if (sb->inode_bytes > BASE_BYTES)
        disk->extra_isize = le16_make((uint16_t)extra_isize);
    return extra_isize;
}

static struct timespec clamp_time(bool has_extra, struct timespec time)
{
    const int64_t earliest = INT32_MIN;
    const int64_t latest = INT32_MAX + (has_extra ? (int64_t)EXTRA_EPOCH_MASK << 32 : 0);

    if (time.tv_sec < earliest)
        return (struct timespec){.tv_sec = earliest};
    if (time.tv_sec > latest)
        return (struct timespec){.tv_sec = latest};
    return (struct timespec){.tv_sec = time.tv_sec, .tv_nsec = has_extra ? time.tv_nsec : 0};
}

struct timespec inode_clamp_time(uint32_t extra_isize, struct timespec time)
{
    return clamp_time(COVERS(extra_isize, access_time_extra), time);
}

static void put_time(struct timespec time, bool has_extra, le32 *seconds, le32 *extra)
{
    time = clamp_time(has_extra, time);
    int32_t low = (int32_t)(uint32_t)(uint64_t)time.tv_sec;
    uint32_t epoch = (uint32_t)((uint64_t)(time.tv_sec - low) >> 32) & EXTRA_EPOCH_MASK;

    *seconds = le32_make((uint32_t)low);
    if (has_extra)
        *extra = le32_make((uint32_t)time.tv_nsec << EXTRA_EPOCH_BITS | epoch);
}

static void put_times(const struct inode_fields *inode, struct disk_inode *disk)
{
    uint32_t extra = inode->extra_isize;

    put_time(inode->access_time, COVERS(extra, access_time_extra), &disk->access_time,
             &disk->access_time_extra);
    put_time(inode->modify_time, COVERS(extra, modify_time_extra), &disk->modify_time,
             &disk->modify_time_extra);
    put_time(inode->change_time, COVERS(extra, change_time_extra), &disk->change_time,
             &disk->change_time_extra);
    if (COVERS(extra, birth_time))
        put_time(inode->birth_time, COVERS(extra, birth_time_extra), &disk->birth_time,
                 &disk->birth_time_extra);
}

static void put_owner(const struct superblock *sb, const struct inode_fields *inode,
                      struct disk_inode *disk)
{
    disk->uid_low = le16_make((uint16_t)inode->uid);
    disk->gid_low = le16_make((uint16_t)inode->gid);
    if (sb->creator_os == CREATOR_LINUX || sb->creator_os == CREATOR_HURD) {
        disk->uid_high = le16_make((uint16_t)(inode->uid >> 16));
        disk->gid_high = le16_make((uint16_t)(inode->gid >> 16));
    }
    if (superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_PROJECT) &&
        COVERS(inode->extra_isize, project_id))
        disk->project_id = le32_make(inode->project_id);
}

/*
 * 32 bits of sectors; with huge_file 48; beyond that 48 bits of blocks, which the inode's flag
 * says.
 */
static int put_allocated(const struct superblock *sb, const struct inode_fields *inode,
                         struct disk_inode *disk)
{
    uint64_t count = inode->allocated_sectors;
    uint32_t flags = inode->flags & ~(uint32_t)INODE_HUGE_FILE;
    bool has_high = superblock_has_ro_compat(sb, FEATURE_RO_COMPAT_HUGE_FILE) &&
                    sb->creator_os == CREATOR_LINUX;

    if (!has_high && count > UINT32_MAX)
        return -EFBIG;
    if (count >> 48 != 0) {
        count >>= sb->block_bits - SECTOR_BITS;
        flags |= INODE_HUGE_FILE;
        if (count >> 48 != 0)
            return -EFBIG;
    }
    disk->blocks_low = le32_make((uint32_t)count);
    if (has_high)
        disk->blocks_high = le16_make((uint16_t)(count >> 32));
    disk->flags = le32_make(flags);
    return 0;
}

static void put_sizes(const struct superblock *sb, const struct inode_fields *inode,
                      struct disk_inode *disk)
{
    disk->size_low = le32_make((uint32_t)inode->size);
    if (S_ISREG(inode->mode) ||
        (S_ISDIR(inode->mode) && superblock_has_incompat(sb, FEATURE_INCOMPAT_LARGEDIR)))
        disk->size_high = le32_make((uint32_t)(inode->size >> 32));
    disk->xattr_block_low = le32_make((uint32_t)inode->xattr_block);
    if (superblock_has_incompat(sb, FEATURE_INCOMPAT_64BIT) && sb->creator_os == CREATOR_LINUX)
        disk->xattr_block_high = le16_make((uint16_t)(inode->xattr_block >> 32));
    if (sb->creator_os != CREATOR_HURD)
        disk->version_low = le32_make((uint32_t)inode->version);
    if (COVERS(inode->extra_isize, version_high))
        disk->version_high = le32_make((uint32_t)(inode->version >> 32));
}

/* The older encoding where it suffices. */
static void put_device(const struct inode_fields *inode, struct disk_inode *disk)
{
    uint32_t major = inode->rdev_major, minor = inode->rdev_minor;
    le32 forms[3] = {0};

    if (major <= 0xff && minor <= 0xff)
        forms[0] = le32_make(major << 8 | minor);
    else
        forms[1] = le32_make((minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12);
    memcpy(disk->block, forms, sizeof(forms));
}

int inode_format(const struct superblock *sb, uint32_t ino, const struct inode_fields *inode,
                 void *raw)
{
    const size_t bytes = MIN(sb->inode_bytes, sizeof(struct disk_inode));
    struct disk_inode disk = {0};

    assert(inode->extra_isize <= sb->inode_bytes - BASE_BYTES && inode->extra_isize % 4 == 0);
    memcpy(&disk, raw, bytes);
    int error = put_allocated(sb, inode, &disk);
    if (error != 0)
        return error;
    disk.mode = le16_make((uint16_t)inode->mode);
    disk.link_count = le16_make((uint16_t)inode->link_count);
    disk.generation = le32_make(inode->generation);
    disk.deletion_time = le32_make(inode->deletion_time);
    memcpy(disk.block, inode->block, sizeof(disk.block));
    if (sb->inode_bytes > BASE_BYTES)
        disk.extra_isize = le16_make((uint16_t)inode->extra_isize);
    put_owner(sb, inode, &disk);
    put_sizes(sb, inode, &disk);
    put_times(inode, &disk);
    if (S_ISCHR(inode->mode) || S_ISBLK(inode->mode))
        put_device(inode, &disk);
    memcpy(raw, &disk, bytes);
    inode_set_checksum(sb, ino, raw);
    return 0;
}
