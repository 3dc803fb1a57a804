/* SPDX-License-Identifier: MIT */
/*
 * explore [--states N] [--seed N] [--seconds N] [--workload NAME] [--keep FOLDER]
 *         [--tear-superblock] [--state ID]
 *
 * Cuts the power of workloads at every device write, and checks what a recovery makes of it.
 *
 *   mke2fs -> setup -> workload on record:memory:image -> for each cut, for several subsets of the
 *   writes since the last flush: image in /dev/shm -> mounted read-only, read -> mounted
 *   read-write (recovers), read -> both alike, and as the model allows -> unmounted -> e2fsck -fn
 *
 * A state's id is workload:seed:cut:subset:recovery. Subset 0 is all writes before the cut; in 1
 * all that no flush covers are lost; in 2 and 3 the write at the cut is there in part or before the
 * others; further ones draw for each write whether it is kept, lost or torn at 512 bytes. Recovery
 * is 0, or says where the power was cut again. The record is nearly the same on each run of a
 * single-threaded workload; a kept image is exact. A state is an image with what was promised.
 * Locks: none; two processes share the counters.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "crash.h"
#include "fs/fs.h"

#define IMAGE_BYTES    (16u << 20)
#define SECTOR_BYTES   512u
#define WORKERS        2
#define SEEN_SLOTS     (1u << 20)
#define MAX_FAILURES   40
#define RECOVERY_SHARE 7            /* one state of so many has its recovery cut too */
#define FREE_BYTES     (300u << 10) /* what the full disk has left at the start */

extern char **environ;

static const char *const shapes[] = {
    "-t ext4 -b 1024",
    "-t ext4 -b 4096 -J size=4",
    "-t ext4 -b 1024 -I 128 -O ^metadata_csum,^64bit",
    "-t ext4 -b 4096 -O ^64bit,^flex_bg -J size=4",
    "-t ext3 -b 1024",
};

struct options {
    unsigned int states_per_run, seed, seconds;
    const char *workload, *keep;
    size_t state_cut;
    uint64_t state_subset, state_recovery_cut;
    bool has_state, tears_superblock;
};

/* Shared by the processes. */
struct totals {
    atomic_ulong states, duplicates, images, recovery_cuts, failures;
    atomic_ulong seen_states[SEEN_SLOTS], seen_images[SEEN_SLOTS];
};

/* A copy of a device's record. */
struct recording {
    struct record_entry *entries;
    size_t count;
};

struct run {
    const struct options *options;
    const struct workload *workload;
    unsigned int seed;
    struct domain domains[MAX_DOMAINS];
    struct recording recording;
    uint8_t *base;
    /* Of a worker. */
    char state_path[96];
    uint8_t *state, *durable;
    uint64_t durable_hash;
    size_t durable_end; /* entries that `durable` holds, and those with FUA up to the cut */
};

static struct totals *totals;
static char folder[] = "/dev/shm/uext4-crash-XXXXXX";
static struct run run;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "explore: %s\n", what);
    exit(2);
}

static void log_message(void *context, enum uext4_log_level level, const char *message)
{
    char *text = context;

    if (level == UEXT4_LOG_ERROR && text != NULL && text[0] == '\0')
        snprintf(text, MESSAGE_BYTES / 2, "%s", message);
}

static int mount_spec(const char *spec, bool is_read_only, char *log_text, struct uext4 **fs)
{
    struct uext4_mount_options options;

    uext4_mount_options_init(&options);
    options.is_read_only = is_read_only;
    options.direct = UEXT4_DIRECT_OFF;
    options.commit_interval_seconds = 3600;
    options.log = log_message;
    options.log_context = log_text;
    return uext4_mount(spec, &options, fs);
}

/* ---- Recording ------------------------------------------------------------------------------- */

static const struct device_ops *record_ops;
static struct recording *capture; /* what takes the record that is closed next */

/* Takes a copy of the record when the device goes: the unmount's writes are in it. */
static void close_record(struct device *device)
{
    device->ops = record_ops;
    capture->count = record_count(device);
    capture->entries = calloc(capture->count + 1, sizeof(*capture->entries));
    if (capture->entries == NULL)
        die("out of memory");
    for (size_t i = 0; i < capture->count; i++) {
        struct record_entry *entry = &capture->entries[i];

        if (record_get(device, i, entry) != 0)
            die("a record is gone");
        if (entry->kind == RECORD_WRITE) {
            void *copy = malloc(entry->length_bytes);

            if (copy == NULL)
                die("out of memory");
            memcpy(copy, entry->data, entry->length_bytes);
            entry->data = copy;
        }
    }
    record_ops->close(device);
}

static void unmount_recorded(struct uext4 *fs, struct device *record, struct recording *recording)
{
    static struct device_ops ops;

    record_ops = record->ops;
    ops = *record_ops;
    ops.close = close_record;
    record->ops = &ops;
    capture = recording;
    uext4_unmount(fs);
}

static void free_recording(struct recording *recording)
{
    for (size_t i = 0; i < recording->count; i++)
        if (recording->entries[i].kind == RECORD_WRITE)
            free((void *)(uintptr_t)recording->entries[i].data);
    free(recording->entries);
}

/* Fills the disk but for a few blocks. */
static void fill_disk(struct uext4 *fs)
{
    struct uext4_new_inode what = {.mode = S_IFREG | 0600};
    struct uext4_inode *root, *filler;
    static char buffer[65536];
    uint64_t offset = 0;
    ssize_t count;

    if (uext4_walk(fs, "/", 0, &root) != 0 || uext4_create(root, "filler", 6, &what, &filler) != 0)
        die("setup: filler");
    memset(buffer, 'f', sizeof(buffer));
    while ((count = uext4_write(filler, buffer, sizeof(buffer), offset)) > 0)
        offset += (uint64_t)count;
    if (uext4_truncate(filler, offset - FREE_BYTES) != 0)
        die("setup: filler");
    uext4_inode_put(filler);
    uext4_inode_put(root);
}

static void make_image(const char *path)
{
    struct uext4_new_inode what = {.mode = S_IFDIR | 0755};
    const char *shape = run.workload->shape != NULL ? run.workload->shape
                                                    : shapes[run.seed % ARRAY_LENGTH(shapes)];
    char command[512], text[MESSAGE_BYTES] = "";
    struct uext4_inode *root;
    struct uext4 *fs;

    snprintf(command, sizeof(command), "rm -f %s; mke2fs -q -F %s %s %uk >/dev/null", path, shape,
             path, IMAGE_BYTES >> 10);
    if (system(command) != 0)
        die("mke2fs failed");
    if (mount_spec(path, false, text, &fs) != 0 || uext4_walk(fs, "/", 0, &root) != 0) {
        fprintf(stderr, "%s\n", text);
        die("setup: mount");
    }
    for (unsigned int i = 0; i < MAX_DOMAINS; i++) {
        snprintf(run.domains[i].root, sizeof(run.domains[i].root), "d%u", i);
        if (uext4_mkdir(root, run.domains[i].root, 2, &what, NULL) != 0)
            die("setup: mkdir");
    }
    uext4_inode_put(root);
    if (run.workload->is_disk_full)
        fill_disk(fs);
    uext4_unmount(fs);
}

static uint8_t *map_image(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint8_t *bytes = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, IMAGE_BYTES) == 0)
        bytes = mmap(NULL, IMAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        die("cannot map an image");
    close(fd);
    return bytes;
}

static void *run_domain(void *context)
{
    struct domain *domain = context;

    run.workload->run(domain);
    return NULL;
}

static void record_run(const char *path)
{
    pthread_t threads[MAX_DOMAINS];
    char spec[160], text[MESSAGE_BYTES] = "";
    struct uext4 *fs;

    make_image(path);
    run.base = map_image(path);
    snprintf(spec, sizeof(spec), "record:memory:%s", path);
    if (mount_spec(spec, false, text, &fs) != 0)
        die("mount for the workload");
    struct device *record = record_find(fs->volume.device);
    for (unsigned int i = 0; i < run.workload->domain_count; i++) {
        run.domains[i].fs = fs;
        run.domains[i].record = record;
        run.domains[i].seed = run.seed * 2654435761u + i;
        if (pthread_create(&threads[i], NULL, run_domain, &run.domains[i]) != 0)
            die("pthread_create");
    }
    for (unsigned int i = 0; i < run.workload->domain_count; i++) {
        pthread_join(threads[i], NULL);
        op_close_all(&run.domains[i]);
        model_finish(&run.domains[i]);
    }
    unmount_recorded(fs, record, &run.recording);
    if (text[0] != '\0')
        printf("# %s:%u: the library logged: %s\n", run.workload->name, run.seed, text);
}

/* ---- States ---------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *random)
{
    *random += 0x9e3779b97f4a7c15u;
    return mix(mix(*random, *random >> 17), 1);
}

static void apply(uint8_t *image, const struct record_entry *entry, uint64_t sector_mask,
                  uint64_t *hash)
{
    const uint8_t *data = entry->data;

    if (entry->offset_bytes + entry->length_bytes > IMAGE_BYTES)
        die("a record lies outside the image");
    for (uint64_t done = 0; done < entry->length_bytes; done += SECTOR_BYTES) {
        uint64_t index = (entry->offset_bytes + done) / SECTOR_BYTES;
        uint8_t *sector = image + entry->offset_bytes + done;

        if (((sector_mask >> (done / SECTOR_BYTES % 64)) & 1) == 0)
            continue;
        if (hash != NULL)
            *hash -= hash_bytes(index, sector, SECTOR_BYTES);
        if (entry->kind == RECORD_DISCARD)
            memset(sector, 0, SECTOR_BYTES);
        else
            memcpy(sector, data + done, SECTOR_BYTES);
        if (hash != NULL)
            *hash += hash_bytes(index, sector, SECTOR_BYTES);
    }
}

static bool is_change(const struct record_entry *entry)
{
    return entry->kind == RECORD_WRITE || entry->kind == RECORD_DISCARD;
}

/* Which sectors of a write since the last flush are there in a subset. */
static uint64_t draw_sectors(uint64_t subset, bool is_at_cut, bool is_fua, uint64_t *random)
{
    if (is_fua && !is_at_cut)
        return UINT64_MAX;
    if (subset == 0 || subset == 1)
        return subset == 0 && !is_at_cut ? UINT64_MAX : 0;
    if (subset == 2)
        return is_at_cut ? next_random(random) : UINT64_MAX;
    if (subset == 3)
        return is_at_cut ? UINT64_MAX : 0;
    uint64_t draw = next_random(random) % 16, lost = 1 + 3 * (subset % 4);

    return draw < lost ? 0 : draw < lost + 3 ? next_random(random) : UINT64_MAX;
}

/*
 * The superblock's checksum is in its second sector, and what changes in the first, so that a torn
 * one cannot be read by anybody. It counts as one sector, as on disks with sectors of 4096 bytes.
 */
static uint64_t join_superblock(const struct record_entry *entry, uint64_t sectors)
{
    uint64_t end = entry->offset_bytes + entry->length_bytes;

    if (entry->offset_bytes > 1024 || end < 2048)
        return sectors;
    unsigned int first = (unsigned int)((1024 - entry->offset_bytes) / SECTOR_BYTES);

    return (sectors & ~(UINT64_C(2) << first)) | ((sectors >> first & 1) << (first + 1));
}

/* The first entry that no flush before the cut covers. */
static size_t volatile_start(const struct recording *recording, size_t cut)
{
    while (cut > 0 && recording->entries[cut - 1].kind != RECORD_FLUSH)
        cut--;
    return cut;
}

/* Applies what a subset has of the writes that no flush covers, and of the one at the cut. */
static void apply_subset(const struct recording *recording, size_t cut, uint64_t subset,
                         uint64_t random, uint64_t *hash)
{
    for (size_t i = volatile_start(recording, cut); i <= cut && i < recording->count; i++) {
        const struct record_entry *entry = &recording->entries[i];

        if (!is_change(entry))
            continue;
        uint64_t sectors = draw_sectors(subset, i == cut, (entry->flags & DEVICE_FUA) != 0,
                                        &random);
        if (!run.options->tears_superblock)
            sectors = join_superblock(entry, sectors);
        apply(run.state, entry, sectors, hash);
    }
}

/* Builds a state in the worker's image. Returns the image's hash. */
static uint64_t build_state(size_t cut, uint64_t subset)
{
    size_t start = volatile_start(&run.recording, cut);
    uint64_t hash;

    for (; run.durable_end < start; run.durable_end++)
        if (is_change(&run.recording.entries[run.durable_end]))
            apply(run.durable, &run.recording.entries[run.durable_end], UINT64_MAX,
                  &run.durable_hash);
    hash = run.durable_hash;
    memcpy(run.state, run.durable, IMAGE_BYTES);
    apply_subset(&run.recording, cut, subset, mix(mix(run.seed, cut), subset), &hash);
    return hash_bytes(mix(hash, run.seed), run.workload->name, strlen(run.workload->name)) | 1;
}

/*
 * Cuts the power again while the state in the worker's image is recovered: the n-th time that is
 * done to it. False if the image cannot be mounted.
 */
static bool cut_recovery(uint64_t n, struct finding *finding)
{
    char spec[160], text[MESSAGE_BYTES] = "";
    struct recording recording = {0};
    uint8_t *before = malloc(IMAGE_BYTES);
    struct uext4 *fs;

    if (before == NULL)
        die("out of memory");
    memcpy(before, run.state, IMAGE_BYTES);
    snprintf(spec, sizeof(spec), "record:%s", run.state_path);
    int error = mount_spec(spec, false, text, &fs);
    if (error != 0) {
        snprintf(finding->text, sizeof(finding->text), "recovery that is to be cut gives %d: %s",
                 error, text);
        free(before);
        return false;
    }
    unmount_recorded(fs, record_find(fs->volume.device), &recording);
    uint64_t random = mix(run.seed, n);
    size_t cut = next_random(&random) % (recording.count + 1);

    memcpy(run.state, before, IMAGE_BYTES);
    for (size_t i = 0; i < volatile_start(&recording, cut); i++)
        if (is_change(&recording.entries[i]))
            apply(run.state, &recording.entries[i], UINT64_MAX, NULL);
    apply_subset(&recording, cut, next_random(&random) % 8, random, NULL);
    free_recording(&recording);
    free(before);
    return true;
}

/* Notes a state. False if it was there. */
static bool is_new(atomic_ulong *seen, uint64_t hash)
{
    for (size_t i = hash >> 20, tries = 0; tries < SEEN_SLOTS / 2; i++, tries++) {
        unsigned long expected = 0;

        if (atomic_compare_exchange_strong(&seen[i % SEEN_SLOTS], &expected, hash))
            return true;
        if (expected == hash)
            return false;
    }
    return true;
}

static bool run_e2fsck(const char *path, struct finding *finding)
{
    char log_path[128];
    posix_spawn_file_actions_t actions;
    char *const arguments[] = {"e2fsck", "-fn", (char *)(uintptr_t)path, NULL};
    pid_t pid;
    int status;

    snprintf(log_path, sizeof(log_path), "%s.log", path);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int error = posix_spawnp(&pid, "e2fsck", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0 || waitpid(pid, &status, 0) != pid)
        die("e2fsck cannot be run");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    size_t length = (size_t)snprintf(finding->text, sizeof(finding->text), "e2fsck -fn gives %d: ",
                                     WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    FILE *file = fopen(log_path, "r");
    char line[256];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "e2fsck", 6) != 0 && strncmp(line, "Pass", 4) != 0 && line[0] != '\n' &&
            length + strlen(line) < sizeof(finding->text)) {
            line[strcspn(line, "\n")] = '|';
            length += (size_t)snprintf(finding->text + length, sizeof(finding->text) - length, "%s",
                                       line);
        }
    if (file != NULL)
        fclose(file);
    return false;
}

/* Mounts the state and reads all domains. */
static bool look(bool is_read_only, size_t cut, uint64_t *digest, struct finding *finding)
{
    char text[MESSAGE_BYTES] = "";
    struct uext4 *fs;
    bool is_good = true;
    int error = mount_spec(run.state_path, is_read_only, text, &fs);

    *digest = 0;
    if (error != 0) {
        snprintf(finding->text, sizeof(finding->text), "%s mount gives %d: %s",
                 is_read_only ? "read-only" : "read-write", error, text);
        return false;
    }
    for (unsigned int i = 0; is_good && i < run.workload->domain_count; i++) {
        struct domain *domain = &run.domains[i];
        struct tree tree = {0};

        is_good = tree_read(fs, domain->root, &tree, finding);
        *digest = mix(*digest, tree_digest(&tree));
        if (is_good && !is_read_only)
            is_good = model_check(domain, cut, &tree, finding);
        tree_free(&tree);
    }
    uext4_unmount(fs);
    if (is_good && text[0] != '\0') {
        snprintf(finding->text, sizeof(finding->text), "logged: %s", text);
        is_good = false;
    }
    return is_good;
}

static void report(size_t cut, uint64_t subset, uint64_t recovery_cut,
                   const struct finding *finding)
{
    char id[96], path[512];
    FILE *file;

    if (atomic_fetch_add(&totals->failures, 1) >= MAX_FAILURES)
        return;
    snprintf(id, sizeof(id), "%s:%u:%zu:%llu:%llu", run.workload->name, run.seed, cut,
             (unsigned long long)subset, (unsigned long long)recovery_cut);
    printf("not ok: %s: %s\n", id, finding->text);
    fflush(stdout);
    if (run.options->keep == NULL)
        return;
    build_state(cut, subset);
    snprintf(path, sizeof(path), "%s/%s.img", run.options->keep, id);
    file = fopen(path, "w");
    if (file == NULL || fwrite(run.state, 1, IMAGE_BYTES, file) != IMAGE_BYTES)
        perror(path);
    if (file != NULL)
        fclose(file);
}

/* Looks at the image read-only, recovers it, and looks again. */
static bool judge(size_t cut, uint64_t *digest, struct finding *finding)
{
    uint64_t dirty_digest;

    if (!look(true, cut, &dirty_digest, finding) || !look(false, cut, digest, finding))
        return false;
    if (*digest == dirty_digest)
        return run_e2fsck(run.state_path, finding);
    snprintf(finding->text, sizeof(finding->text),
             "the read-only mount of the dirty image shows something else");
    return false;
}

static void check_state(size_t cut, uint64_t subset, uint64_t recovery_cuts)
{
    struct finding finding = {""};
    uint64_t digest, second_digest, image_hash = build_state(cut, subset), hash = image_hash;

    for (unsigned int i = 0; i < run.workload->domain_count; i++)
        hash = mix(hash, model_promises(&run.domains[i], cut));
    if (!is_new(totals->seen_states, hash | 1)) {
        atomic_fetch_add(&totals->duplicates, 1);
        return;
    }
    atomic_fetch_add(&totals->states, 1);
    atomic_fetch_add(&totals->images, is_new(totals->seen_images, image_hash));
    if (!judge(cut, &digest, &finding)) {
        report(cut, subset, 0, &finding);
        return;
    }
    for (uint64_t n = 1; n <= recovery_cuts; n++) {
        build_state(cut, subset);
        bool is_good = cut_recovery(n + cut, &finding) && judge(cut, &second_digest, &finding);
        atomic_fetch_add(&totals->recovery_cuts, 1);
        if (is_good && second_digest != digest) {
            snprintf(finding.text, sizeof(finding.text), "recovered again, it shows other things");
            is_good = false;
        }
        if (!is_good)
            report(cut, subset, n, &finding);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void open_worker(int worker)
{
    snprintf(run.state_path, sizeof(run.state_path), "%s/state-%d", folder, worker);
    run.state = map_image(run.state_path);
    run.durable = malloc(IMAGE_BYTES);
    if (run.durable == NULL)
        die("out of memory");
    memcpy(run.durable, run.base, IMAGE_BYTES);
    run.durable_end = 0;
}

/*
 * Every worker takes its share of the cuts. With fewer states wanted than cuts, each takes every
 * n-th; with more, each cut has several subsets.
 */
static void work(int worker, const struct timespec *deadline)
{
    size_t cuts = run.recording.count + 1;
    size_t step = MAX(cuts / run.options->states_per_run, 1);
    uint64_t subsets = MAX(run.options->states_per_run * step / cuts, 1) + 2;

    open_worker(worker);
    for (size_t cut = (size_t)worker * step + run.seed % step; cut < cuts; cut += WORKERS * step) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        if (run.options->seconds != 0 && now.tv_sec >= deadline->tv_sec)
            break;
        for (uint64_t subset = 0; subset < subsets; subset++)
            check_state(cut, subset, (cut / step + subset) % RECOVERY_SHARE == 0 ? 1 : 0);
    }
}

static void explore(const struct workload *workload, const struct options *options,
                    const struct timespec *deadline)
{
    unsigned long states = totals->states, failures = totals->failures;
    pid_t pids[WORKERS];
    char path[96];
    int status;

    memset(&run, 0, sizeof(run));
    run.options = options;
    run.workload = workload;
    run.seed = options->seed;
    snprintf(path, sizeof(path), "%s/base", folder);
    record_run(path);
    fflush(stdout);
    if (options->has_state) {
        open_worker(0);
        check_state(options->state_cut, options->state_subset, options->state_recovery_cut);
    }
    for (int i = 0; i < WORKERS && !options->has_state; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            work(i, deadline);
            exit(0);
        }
    }
    for (int i = 0; i < WORKERS && !options->has_state; i++)
        if (pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0) {
            printf("not ok: %s:%u: a worker died (status 0x%x)\n", workload->name, run.seed,
                   (unsigned int)status);
            totals->failures++;
        }
    printf("# %s:%u: %zu records, %d operations (%d ran out of space), %lu states, %lu failures\n",
           workload->name, run.seed, run.recording.count,
           run.domains[0].operation_count + run.domains[1].operation_count,
           run.domains[0].no_space_count + run.domains[1].no_space_count, totals->states - states,
           totals->failures - failures);
    fflush(stdout);
    free_recording(&run.recording);
    munmap(run.base, IMAGE_BYTES);
}

static void parse_state(const char *id, struct options *options)
{
    static char name[32];
    unsigned long long subset, recovery_cut = 0;

    if (sscanf(id, "%31[^:]:%u:%zu:%llu:%llu", name, &options->seed, &options->state_cut, &subset,
               &recovery_cut) < 4)
        die("an id is workload:seed:cut:subset:recovery cut");
    options->state_recovery_cut = recovery_cut;
    options->workload = name;
    options->state_subset = subset;
    options->has_state = true;
}

static struct options parse(int argc, char **argv)
{
    struct options options = {.states_per_run = 60, .seed = 1};

    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--tear-superblock") == 0) {
            options.tears_superblock = true;
            i--;
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned int number = (unsigned int)strtoul(value, NULL, 10);

        if (strcmp(argv[i], "--states") == 0 && number > 0)
            options.states_per_run = number;
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = number;
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = number;
        else if (strcmp(argv[i], "--workload") == 0)
            options.workload = value;
        else if (strcmp(argv[i], "--keep") == 0)
            options.keep = value;
        else if (strcmp(argv[i], "--state") == 0)
            parse_state(value, &options);
        else
            die("usage: explore [--states N] [--seed N] [--seconds N] [--workload NAME] "
                "[--keep FOLDER] [--tear-superblock] [--state ID]");
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    struct timespec deadline;
    char command[64];

    totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED || mkdtemp(folder) == NULL)
        die("cannot start");
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += options.seconds;
    for (unsigned int i = 0; i < workload_count; i++)
        if (options.workload == NULL || strcmp(options.workload, workloads[i].name) == 0)
            explore(&workloads[i], &options, &deadline);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0)
        perror(folder);
    printf("%lu distinct states (%lu distinct images), %lu cut recoveries, %lu duplicates, "
           "%lu failures\n",
           totals->states, totals->images, totals->recovery_cuts, totals->duplicates,
           totals->failures);
    return totals->states == 0 || totals->failures > 0;
}
