/* A ring of launches in a file that another process maps: one writer process, one reader process.
 *
 * The reader may pause it: then nothing is noted, timed or numbered, and the first launch that is noted again says
 * so. What capture costs the program is measured on one launch in RING_TIMED and added to `spent_ns`.
 * The file is created in PENROSE_RING_DIR, which must be a directory of this user that nobody else can open.
 * Layout: header page, armed launch numbers, names, records; penrose_ray/capture/ring.py reads the same.
 * A record counts only once the header's `written` has passed it, so a writer may be killed at any point. The
 * writer holds an advisory lock on the file until it ends; the reader learns from it that no more will come.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RING_MAGIC "PENROSE-RING-02"
#define RING_HEADER_BYTES 4096
#define RING_ARMED 65536u
#define RING_NAME_BYTES (1u << 20)
#define RING_DEFAULT_RECORDS 65536u
#define RING_TIMED 64u
#define RING_INTERRUPTED_NS 20000u /* a launch that took longer did not run all that time */

enum { RING_LAUNCH = 0, RING_TIMES = 1 };
enum { RING_GAP = 1, RING_AWAITS_TIMES = 2, RING_RESUMED = 4 };
enum { RING_KERNEL_NAME = 0, RING_DEVICE_NAME = 1 };

struct ring_record {
    uint64_t launch; /* number among this process' launches, lost ones included */
    uint64_t correlation;
    int64_t queued_ns, start_ns, end_ns; /* 0: unknown */
    uint32_t name, context, stream, graph_node;
    uint32_t grid[3], block[3];
    uint16_t device;
    uint8_t record_kind, kernel_kind, flags, unused[3];
}; /* 88 bytes */

struct ring_header {
    char magic[16];
    uint32_t record_bytes, records, armed_slots, name_bytes;
    uint64_t pid;
    _Atomic uint64_t written, read, launches, dropped;
    _Atomic uint64_t pauses; /* the reader counts up: odd while nothing is to be noted */
    _Atomic uint64_t names_used, armed_written, armed_read, finished;
    uint64_t armed_base; /* number in the reader's stream that this process' launch 0 stands for */
    _Atomic uint64_t spent_ns; /* CPU time of the program's threads in capture */
};

static struct {
    struct ring_header *_Atomic header;
    uint64_t *armed;
    unsigned char *names;
    struct ring_record *records;
    uint32_t name_count[2];
    int failed, gap;
    uint64_t pauses; /* what the header said when a launch was last noted */
} ring;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;

static void ring_forget(void); /* the including file's tables, which refer to a ring's names */

static void ring_after_fork(void)
{
    /* the parent goes on with its ring; the child begins one of its own */
    ring_forget();
    memset(&ring, 0, sizeof ring);
    pthread_mutex_init(&ring_lock, NULL);
}

static int ring_private_directory(const char *path)
{
    struct stat info;
    return path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
           (info.st_mode & 077) == 0;
}

static uint32_t ring_capacity(void)
{
    const char *text = getenv("PENROSE_RING_RECORDS");
    const long wanted = text ? strtol(text, NULL, 10) : 0;
    return wanted >= 16 && wanted <= (1 << 24) ? (uint32_t)wanted : RING_DEFAULT_RECORDS;
}

/* Whether nothing is to be noted; may be asked without the lock. */
static int ring_paused(void)
{
    struct ring_header *header = ring.header;
    return header && atomic_load_explicit(&header->pauses, memory_order_relaxed) % 2;
}

static uint64_t ring_now_ns(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) ? 0 : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void ring_spend(uint64_t spent_ns)
{
    struct ring_header *header = ring.header;
    if (header)
        atomic_fetch_add_explicit(&header->spent_ns, spent_ns, memory_order_relaxed);
}

/* Start of a launch that is timed, 0 for one that is not: by the clock that is cheap to read. */
static uint64_t ring_timed(void)
{
    static _Thread_local uint32_t turn;
    return ++turn % RING_TIMED ? 0 : ring_now_ns(CLOCK_MONOTONIC);
}

static void ring_spend_timed(uint64_t began_ns)
{
    if (!began_ns)
        return;
    const uint64_t took_ns = ring_now_ns(CLOCK_MONOTONIC) - began_ns;
    ring_spend(RING_TIMED * (took_ns < RING_INTERRUPTED_NS ? took_ns : RING_INTERRUPTED_NS));
}

/* Take over what the reader has planned: its file `plan` says whether capture is paused, then it has a base, then
 * launch numbers from 0 on. */
static void ring_load_plan(const char *directory)
{
    char path[4096];
    uint64_t head[2];
    if (snprintf(path, sizeof path, "%s/plan", directory) >= (int)sizeof path)
        return;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return;
    if (read(file, head, sizeof head) == sizeof head) {
        ring.header->pauses = head[0] != 0;
        ring.header->armed_base = head[1];
        const ssize_t got = read(file, ring.armed, RING_ARMED * sizeof(uint64_t));
        ring.header->armed_written = got > 0 ? (uint64_t)got / sizeof(uint64_t) : 0;
    }
    close(file);
}

/* Called with the lock held. Without a ring the program runs on as if nothing had been asked of it. */
static int ring_ready(void)
{
    static int fork_handler;
    const char *directory = getenv("PENROSE_RING_DIR");
    char path[4096];
    if (ring.header || ring.failed)
        return ring.header != NULL;
    ring.failed = 1;
    if (!ring_private_directory(directory) ||
        snprintf(path, sizeof path, "%s/.new-XXXXXX", directory) >= (int)sizeof path)
        return 0;
    const int file = mkostemp(path, O_CLOEXEC);
    if (file < 0)
        return 0;
    const uint32_t records = ring_capacity();
    const size_t armed_bytes = RING_ARMED * sizeof(uint64_t);
    const size_t size = RING_HEADER_BYTES + armed_bytes + RING_NAME_BYTES + records * sizeof(struct ring_record);
    unsigned char *base = MAP_FAILED;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && ftruncate(file, (off_t)size) == 0)
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) {
        unlink(path);
        close(file);
        return 0;
    }
    ring.header = (struct ring_header *)base;
    ring.armed = (uint64_t *)(base + RING_HEADER_BYTES);
    ring.names = base + RING_HEADER_BYTES + armed_bytes;
    ring.records = (struct ring_record *)(ring.names + RING_NAME_BYTES);
    ring.header->record_bytes = sizeof(struct ring_record);
    ring.header->records = records;
    ring.header->armed_slots = RING_ARMED;
    ring.header->name_bytes = RING_NAME_BYTES;
    ring.header->pid = (uint64_t)getpid();
    ring_load_plan(directory);
    memcpy(ring.header->magic, RING_MAGIC, sizeof ring.header->magic);
    char final_path[4096];
    snprintf(final_path, sizeof final_path, "%s/%s.ring", directory, path + strlen(path) - 6);
    rename(path, final_path); /* the file stays open: its lock says that this process lives */
    if (!fork_handler++)
        pthread_atfork(NULL, NULL, ring_after_fork);
    return 1;
}

/* Number of a new name in its table; UINT32_MAX when the table is full. */
static uint32_t ring_add_name(int kind, const char *text)
{
    const uint64_t used = atomic_load_explicit(&ring.header->names_used, memory_order_relaxed);
    size_t length = strlen(text);
    if (length > 65535)
        length = 65535;
    if (used + 4 + length > RING_NAME_BYTES)
        return UINT32_MAX;
    unsigned char *entry = ring.names + used;
    entry[0] = (unsigned char)kind;
    entry[1] = 0;
    entry[2] = (unsigned char)(length & 0xFF);
    entry[3] = (unsigned char)(length >> 8);
    memcpy(entry + 4, text, length);
    atomic_store_explicit(&ring.header->names_used, used + 4 + length, memory_order_release);
    return ring.name_count[kind]++;
}

/* Append with the lock held; a full ring drops the record and counts it. */
static int ring_append(struct ring_record *record)
{
    struct ring_header *header = ring.header;
    const uint64_t written = atomic_load_explicit(&header->written, memory_order_relaxed);
    const uint64_t read = atomic_load_explicit(&header->read, memory_order_acquire);
    if (written - read >= header->records) {
        if (record->record_kind == RING_LAUNCH) {
            atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
            ring.gap = 1;
        }
        return 0;
    }
    if (record->record_kind == RING_LAUNCH) {
        const uint64_t pauses = atomic_load_explicit(&header->pauses, memory_order_relaxed);
        record->flags |= (ring.gap ? RING_GAP : 0) | (pauses != ring.pauses ? RING_RESUMED : 0);
        ring.gap = 0;
        ring.pauses = pauses;
    }
    ring.records[written % header->records] = *record;
    atomic_store_explicit(&header->written, written + 1, memory_order_release);
    return 1;
}

/* Whether this launch number was armed; numbers that have passed are skipped. */
static int ring_is_armed(uint64_t launch)
{
    struct ring_header *header = ring.header;
    const uint64_t end = atomic_load_explicit(&header->armed_written, memory_order_acquire);
    uint64_t next = atomic_load_explicit(&header->armed_read, memory_order_relaxed);
    while (next < end && ring.armed[next % RING_ARMED] < launch)
        next++;
    const int armed = next < end && ring.armed[next % RING_ARMED] == launch;
    atomic_store_explicit(&header->armed_read, next + armed, memory_order_release);
    return armed;
}
