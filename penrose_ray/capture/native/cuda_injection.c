/* Loaded by the CUDA driver into an unmodified program (CUDA_INJECTION64_PATH): notes its kernels in a ring.
 *
 * CUPTI is looked up at run time, first among the libraries that the program has loaded: two copies in one
 * process disturb one another. Its buffers come from a pool that is never freed, because CUPTI may write to
 * them until the process ends; they are allocated beforehand, so that no launch waits for memory.
 */
#include "ring.c"

#include <cuda.h>
#include <cupti_activity.h> /* not cupti.h: its generated parts demand headers of the very same release */
#include <cupti_version.h>
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>

#define BUFFER_BYTES (4u << 20)
#define BUFFERS 16
#define ALIGNMENT 8
#define NULL_BUFFER_SINCE 27u /* CUPTI API version that survives being given no buffer */
#define MOST_DEVICES 64
#define KNOWN_NAMES 8192u
#define PAUSE_LOOK_NS 250000000 /* how often the pause word is looked at */

#define CUPTI_FUNCTION(name) static __typeof__(&name) name##_call
CUPTI_FUNCTION(cuptiActivityRegisterCallbacks);
CUPTI_FUNCTION(cuptiActivityEnable);
CUPTI_FUNCTION(cuptiActivityDisable);
CUPTI_FUNCTION(cuptiActivityFlushAll);
CUPTI_FUNCTION(cuptiActivityFlushPeriod);
CUPTI_FUNCTION(cuptiActivityGetNextRecord);
CUPTI_FUNCTION(cuptiActivityGetNumDroppedRecords);
CUPTI_FUNCTION(cuptiGetVersion);

static uint8_t *pool[BUFFERS];
static uint8_t in_use[BUFFERS];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t cupti_version;
static uint16_t device_places[MOST_DEVICES];
static uint8_t device_known[MOST_DEVICES];
static struct {
    uint64_t hash;
    uint32_t number;
} names[KNOWN_NAMES];

static void ring_forget(void)
{
    memset(device_known, 0, sizeof device_known);
    memset(names, 0, sizeof names);
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = NULL;
    *size = BUFFER_BYTES;
    *records = 0;
    pthread_mutex_lock(&pool_lock);
    for (int slot = 0; slot < BUFFERS && !*buffer; slot++)
        if (pool[slot] && !in_use[slot]) {
            in_use[slot] = 1;
            *buffer = pool[slot];
        }
    pthread_mutex_unlock(&pool_lock);
    if (!*buffer && cupti_version < NULL_BUFFER_SINCE && posix_memalign((void **)buffer, ALIGNMENT, BUFFER_BYTES))
        *buffer = NULL;
    if (!*buffer)
        *size = 0; /* the records are dropped, and CUPTI counts them */
}

static uint32_t name_number(const char *name)
{
    uint64_t hash = 1469598103934665603u;
    for (const char *at = name; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 1099511628211u;
    hash |= 1;
    uint32_t place = (uint32_t)(hash % KNOWN_NAMES);
    for (uint32_t step = 0; step < 64; step++, place = (place + 1) % KNOWN_NAMES) {
        if (names[place].hash == hash)
            return names[place].number;
        if (!names[place].hash)
            break;
    }
    names[place].hash = hash;
    return names[place].number = ring_add_name(RING_KERNEL_NAME, name);
}

static uint16_t device_place(uint32_t number)
{
    char text[32];
    if (number >= MOST_DEVICES)
        return 0xFFFF;
    if (!device_known[number]) {
        snprintf(text, sizeof text, "unknown\x1f" "cuda %u", number);
        device_places[number] = (uint16_t)ring_add_name(RING_DEVICE_NAME, text);
        device_known[number] = 1;
    }
    return device_places[number];
}

/* A UUID as NVIDIA's tools write it; returns 0 for one of zeros. */
static int uuid_text(char *text, size_t room, const char *prefix, const CUuuid *uuid)
{
    int any = 0, length = snprintf(text, room, "%s-", prefix);
    for (int byte = 0; byte < 16; byte++) {
        any |= uuid->bytes[byte];
        length += snprintf(text + length, room - (size_t)length, byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-%02x" : "%02x",
                           (uint8_t)uuid->bytes[byte]);
    }
    return any != 0;
}

static void note_device(const CUpti_ActivityDevice5 *device)
{
    char text[400], uuid[80];
    if (device->id >= MOST_DEVICES || device_known[device->id])
        return;
    if (!device->isMigEnabled)
        uuid_text(uuid, sizeof uuid, "GPU", &device->uuid);
    else if (!uuid_text(uuid, sizeof uuid, "MIG", &device->migUuid)) {
        uuid_text(uuid, sizeof uuid, "GPU", &device->uuid);
        snprintf(uuid + strlen(uuid), sizeof uuid - strlen(uuid), "/%u/%u", device->gpuInstanceId, device->computeInstanceId);
    }
    snprintf(text, sizeof text, "%.300s\x1f%s", device->name ? device->name : "unknown", uuid);
    device_places[device->id] = (uint16_t)ring_add_name(RING_DEVICE_NAME, text);
    device_known[device->id] = 1;
}

static void note_kernel(const CUpti_ActivityKernel9 *kernel)
{
    struct ring_record record = {.record_kind = RING_LAUNCH};
    record.launch = atomic_fetch_add_explicit(&ring.header->launches, 1, memory_order_relaxed);
    record.correlation = kernel->correlationId;
    record.graph_node = (uint32_t)kernel->graphNodeId;
    record.name = name_number(kernel->name ? kernel->name : "");
    record.device = device_place(kernel->deviceId);
    record.context = kernel->contextId;
    record.stream = kernel->streamId;
    record.grid[0] = (uint32_t)kernel->gridX;
    record.grid[1] = (uint32_t)kernel->gridY;
    record.grid[2] = (uint32_t)kernel->gridZ;
    record.block[0] = (uint32_t)kernel->blockX;
    record.block[1] = (uint32_t)kernel->blockY;
    record.block[2] = (uint32_t)kernel->blockZ;
    if (ring_is_armed(record.launch)) {
        record.queued_ns = (int64_t)kernel->queued;
        record.start_ns = (int64_t)kernel->start;
        record.end_ns = (int64_t)kernel->end;
    }
    ring_append(&record);
}

static int by_correlation(const void *left, const void *right)
{
    const CUpti_ActivityKernel9 *a = *(CUpti_ActivityKernel9 *const *)left;
    const CUpti_ActivityKernel9 *b = *(CUpti_ActivityKernel9 *const *)right;
    return a->correlationId != b->correlationId ? (a->correlationId > b->correlationId) - (a->correlationId < b->correlationId)
                                                : (a->start > b->start) - (a->start < b->start);
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    static const CUpti_ActivityKernel9 *kernels[BUFFER_BYTES / sizeof(CUpti_ActivityKernel9) + 1];
    const uint64_t began_ns = ring_now_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t count = 0, dropped = 0;
    CUpti_Activity *activity = NULL;
    (void)size;
    pthread_mutex_lock(&ring_lock);
    if (buffer && ring_ready()) {
        while (cuptiActivityGetNextRecord_call(buffer, valid, &activity) == CUPTI_SUCCESS)
            if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || activity->kind == CUPTI_ACTIVITY_KIND_KERNEL)
                kernels[count++] = (const CUpti_ActivityKernel9 *)activity;
            else if (activity->kind == CUPTI_ACTIVITY_KIND_DEVICE)
                note_device((const CUpti_ActivityDevice5 *)activity);
        if (ring_paused())
            count = 0;
        qsort(kernels, count, sizeof *kernels, by_correlation);
        if (cuptiActivityGetNumDroppedRecords_call(context, stream, &dropped) == CUPTI_SUCCESS && dropped && !ring_paused()) {
            atomic_fetch_add_explicit(&ring.header->launches, dropped, memory_order_relaxed);
            atomic_fetch_add_explicit(&ring.header->dropped, dropped, memory_order_relaxed);
            ring.gap = 1;
        }
        for (size_t at = 0; at < count; at++)
            note_kernel(kernels[at]);
    }
    pthread_mutex_unlock(&ring_lock);
    pthread_mutex_lock(&pool_lock);
    for (int slot = 0; slot < BUFFERS; slot++)
        if (pool[slot] == buffer)
            in_use[slot] = 0;
    pthread_mutex_unlock(&pool_lock);
    ring_spend(ring_now_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns);
}

/* While capture is paused CUPTI records no kernels either, so that launches cost nothing. */
static void *obey_pauses(void *unused)
{
    const struct timespec rest = {0, PAUSE_LOOK_NS};
    int paused = 0;
    (void)unused;
    for (;; nanosleep(&rest, NULL))
        if (ring_paused() != paused) {
            paused = !paused;
            (paused ? cuptiActivityDisable_call : cuptiActivityEnable_call)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        }
    return NULL;
}

static void *cupti_library(void)
{
    static const char *const candidates[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    for (int pass = 0; pass < 2; pass++)
        for (size_t at = 0; at < sizeof candidates / sizeof *candidates; at++) {
            void *library = dlopen(candidates[at], RTLD_LAZY | (pass ? 0 : RTLD_NOLOAD));
            if (library)
                return library;
        }
    return NULL;
}

static void finish(void)
{
    if (cuptiActivityFlushAll_call)
        cuptiActivityFlushAll_call(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&ring_lock);
    if (ring.header)
        ring.header->finished = 1;
    pthread_mutex_unlock(&ring_lock);
}

#define LOOK_UP(name) \
    if (!(name##_call = (__typeof__(&name))dlsym(library, #name))) \
        return 0

/* The driver calls this once, before the program's first kernel; 1 means that all went well. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    void *library = cupti_library();
    if (!library || !ring_private_directory(getenv("PENROSE_RING_DIR")))
        return 0;
    LOOK_UP(cuptiActivityRegisterCallbacks);
    LOOK_UP(cuptiActivityEnable);
    LOOK_UP(cuptiActivityDisable);
    LOOK_UP(cuptiActivityFlushAll);
    LOOK_UP(cuptiActivityFlushPeriod);
    LOOK_UP(cuptiActivityGetNextRecord);
    LOOK_UP(cuptiActivityGetNumDroppedRecords);
    LOOK_UP(cuptiGetVersion);
    cuptiGetVersion_call(&cupti_version);
    for (int slot = 0; slot < BUFFERS; slot++)
        if (posix_memalign((void **)&pool[slot], ALIGNMENT, BUFFER_BYTES))
            pool[slot] = NULL;
    if (cuptiActivityRegisterCallbacks_call(buffer_requested, buffer_completed) != CUPTI_SUCCESS ||
        cuptiActivityEnable_call(CUPTI_ACTIVITY_KIND_DEVICE) != CUPTI_SUCCESS ||
        cuptiActivityEnable_call(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
        return 0;
    cuptiActivityFlushPeriod_call(1000);
    pthread_t watcher;
    sigset_t all, before; /* the program's signals go to its own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&watcher, NULL, obey_pauses, NULL) == 0)
        pthread_detach(watcher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atexit(finish);
    return 1;
}
