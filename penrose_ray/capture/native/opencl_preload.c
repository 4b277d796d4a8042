/* LD_PRELOAD library: notes the kernel launches of an unmodified OpenCL program in a ring.
 *
 * The real functions are looked up in the OpenCL library that the program has loaded: RTLD_NEXT finds nothing
 * when that library was loaded privately (as Python wheels do). Profiling is switched on in the queues that the
 * program makes; times are read of armed launches only, when they end.
 */
#include "ring.c"

#include <dlfcn.h>
#include <link.h>

typedef void *handle;
typedef intptr_t property;
typedef int32_t status;
typedef status (*enqueue_function)(handle, handle, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                                   const handle *, handle *);
typedef handle (*create_queue_function)(handle, handle, uint64_t, status *);
typedef handle (*create_queue_with_function)(handle, handle, const property *, status *);
typedef status (*info_function)(handle, uint32_t, size_t, void *, size_t *);
typedef status (*callback_function)(handle, int32_t, void (*)(handle, status, void *), void *);
typedef status (*release_function)(handle);

enum {
    KERNEL_FUNCTION_NAME = 0x1190, QUEUE_CONTEXT = 0x1090, QUEUE_DEVICE = 0x1091, QUEUE_PROPERTIES = 0x1093,
    DEVICE_NAME = 0x102B, DEVICE_UUID = 0x106A, PROFILING_ENABLE = 2, PROFILING_QUEUED = 0x1280, PROFILING_START = 0x1282,
    PROFILING_END = 0x1283, COMPLETE = 0,
};

#define KNOWN 4096u
#define NAME_BYTES 1024
static struct known {
    handle key;
    uint32_t number, device, context;
} kernels[KNOWN], queues[KNOWN];
static uint32_t queue_count, context_count, device_count;
static handle contexts[256], devices[256];

static void ring_forget(void)
{
    memset(kernels, 0, sizeof kernels);
    memset(queues, 0, sizeof queues);
    queue_count = context_count = device_count = 0;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *result)
{
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || !strstr(name, "OpenCL"))
        return 0;
    *(void **)result = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    return *(void **)result != NULL && dlsym(*(void **)result, "clEnqueueNDRangeKernel") != NULL;
}

static void *real(const char *name)
{
    static void *library;
    void *found = NULL;
    if (!library)
        dl_iterate_phdr(find_library, &library);
    if (library)
        found = dlsym(library, name);
    return found ? found : dlsym(RTLD_NEXT, name);
}

#define REAL(type, name) \
    static _Atomic(type) name##_real; \
    if (!name##_real) \
        name##_real = (type)real(#name); \
    const type name##_call = name##_real

/* Slot of a handle in an open-addressed table; a full table begins again, which costs only look-ups. */
static struct known *slot_of(struct known *table, handle key)
{
    uint32_t place = (uint32_t)(((uintptr_t)key >> 4) * 2654435761u) % KNOWN;
    for (uint32_t step = 0; step < 64; step++, place = (place + 1) % KNOWN)
        if (!table[place].key || table[place].key == key)
            return &table[place];
    memset(table, 0, KNOWN * sizeof *table);
    return &table[place];
}

/* Number of a kernel name in the ring, where it is appended when it is new. */
static uint32_t name_number(const char *name)
{
    const unsigned char *entry = ring.names, *end = ring.names + ring.header->names_used;
    const size_t wanted = strlen(name);
    uint32_t number = 0;
    for (; entry < end; entry += 4 + entry[2] + 256 * (size_t)entry[3]) {
        if (entry[0] != RING_KERNEL_NAME)
            continue;
        if (entry[2] + 256 * (size_t)entry[3] == wanted && !memcmp(entry + 4, name, wanted))
            return number;
        number++;
    }
    return ring_add_name(RING_KERNEL_NAME, name);
}

static uint32_t kernel_name(handle kernel)
{
    /* the handle of a released kernel may come again with another name, so the name itself is compared */
    static char names[KNOWN][NAME_BYTES];
    char name[NAME_BYTES] = "";
    REAL(info_function, clGetKernelInfo);
    if (!clGetKernelInfo_call || clGetKernelInfo_call(kernel, KERNEL_FUNCTION_NAME, sizeof name, name, NULL))
        return UINT32_MAX;
    name[sizeof name - 1] = 0;
    struct known *slot = slot_of(kernels, kernel);
    char *stored = names[slot - kernels];
    if (!slot->key || strcmp(stored, name)) {
        slot->key = kernel;
        slot->number = name_number(name);
        strcpy(stored, name);
    }
    return slot->number;
}

/* Number of a handle in a short table, appended when it is new. */
static uint32_t place_of(handle *table, uint32_t *count, handle wanted)
{
    uint32_t place = 0;
    while (place < *count && table[place] != wanted)
        place++;
    if (place == *count && place < 255)
        table[(*count)++] = wanted;
    return place;
}

/* "MODEL<unit separator>IDENTITY": the device's UUID where it has one, else its place in this process. */
static void describe(handle device, uint32_t place, char *text, size_t size)
{
    unsigned char uuid[16];
    char identity[40];
    REAL(info_function, clGetDeviceInfo);
    memset(text, 0, size);
    if (!device || clGetDeviceInfo_call(device, DEVICE_NAME, 256, text, NULL))
        strcpy(text, "unknown");
    snprintf(identity, sizeof identity, "\x1f%u", place);
    if (device && !clGetDeviceInfo_call(device, DEVICE_UUID, sizeof uuid, uuid, NULL))
        for (int byte = 0; byte < 16; byte++)
            snprintf(identity + 1 + 2 * byte, 3, "%02x", uuid[byte]);
    strcat(text, identity);
}

static struct known *queue_place(handle queue)
{
    REAL(info_function, clGetCommandQueueInfo);
    struct known *slot = slot_of(queues, queue);
    if (slot->key)
        return slot;
    handle device = NULL, context = NULL;
    char text[320];
    clGetCommandQueueInfo_call(queue, QUEUE_DEVICE, sizeof device, &device, NULL);
    clGetCommandQueueInfo_call(queue, QUEUE_CONTEXT, sizeof context, &context, NULL);
    const uint32_t before = device_count;
    slot->key = queue;
    slot->number = queue_count++;
    slot->context = place_of(contexts, &context_count, context);
    slot->device = place_of(devices, &device_count, device);
    if (device_count > before) {
        describe(device, slot->device, text, sizeof text);
        ring_add_name(RING_DEVICE_NAME, text);
    }
    return slot;
}

struct waiting {
    uint64_t launch;
    int own; /* the program did not ask for the event: we release it */
};

static void ended(handle event, status state, void *data)
{
    const uint64_t began_ns = ring_now_ns(CLOCK_THREAD_CPUTIME_ID);
    struct waiting *waiting = data;
    struct ring_record record = {.record_kind = RING_TIMES, .launch = waiting->launch};
    uint64_t times[3] = {0, 0, 0};
    REAL(info_function, clGetEventProfilingInfo);
    REAL(release_function, clReleaseEvent);
    if (state == COMPLETE && clGetEventProfilingInfo_call) {
        clGetEventProfilingInfo_call(event, PROFILING_QUEUED, 8, &times[0], NULL);
        clGetEventProfilingInfo_call(event, PROFILING_START, 8, &times[1], NULL);
        clGetEventProfilingInfo_call(event, PROFILING_END, 8, &times[2], NULL);
    }
    record.queued_ns = (int64_t)times[0];
    record.start_ns = (int64_t)times[1];
    record.end_ns = (int64_t)times[2];
    pthread_mutex_lock(&ring_lock);
    if (ring.header)
        ring_append(&record);
    pthread_mutex_unlock(&ring_lock);
    if (waiting->own && clReleaseEvent_call)
        clReleaseEvent_call(event);
    free(waiting);
    ring_spend(ring_now_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns);
}

static void sizes(struct ring_record *record, uint32_t dimensions, const size_t *global, const size_t *local)
{
    for (uint32_t axis = 0; axis < 3; axis++) {
        const size_t items = axis < dimensions && global ? global[axis] : 1;
        const size_t block = axis < dimensions && local && local[axis] ? local[axis] : 1;
        record->block[axis] = (uint32_t)block;
        record->grid[axis] = (uint32_t)((items + block - 1) / block);
    }
}

/* Note a launch; returns whether it is armed, with its number. */
static int note(handle queue, handle kernel, uint32_t dimensions, const size_t *global, const size_t *local,
                uint64_t *number)
{
    const uint64_t began_ns = ring_timed();
    int armed = 0;
    pthread_mutex_lock(&ring_lock);
    if (ring_ready() && !ring_paused()) {
        struct ring_record record = {.record_kind = RING_LAUNCH};
        *number = record.launch = atomic_fetch_add_explicit(&ring.header->launches, 1, memory_order_relaxed);
        record.correlation = record.launch + 1;
        armed = ring_is_armed(record.launch);
        record.name = kernel_name(kernel);
        const struct known *place = queue_place(queue);
        record.stream = place->number;
        record.context = place->context;
        record.device = (uint16_t)place->device;
        record.flags = armed ? RING_AWAITS_TIMES : 0;
        sizes(&record, dimensions, global, local);
        armed &= ring_append(&record);
    }
    pthread_mutex_unlock(&ring_lock);
    ring_spend_timed(began_ns);
    return armed;
}

__attribute__((visibility("default"))) status clEnqueueNDRangeKernel(
    handle queue, handle kernel, uint32_t dimensions, const size_t *offset, const size_t *global, const size_t *local,
    uint32_t wait_count, const handle *wait, handle *event)
{
    REAL(enqueue_function, clEnqueueNDRangeKernel);
    if (!clEnqueueNDRangeKernel_call)
        return -59; /* CL_INVALID_OPERATION: there is no OpenCL library to pass the call on to */
    if (ring_paused())
        return clEnqueueNDRangeKernel_call(queue, kernel, dimensions, offset, global, local, wait_count, wait, event);
    REAL(callback_function, clSetEventCallback);
    REAL(release_function, clReleaseEvent);
    uint64_t number = 0;
    const int armed = note(queue, kernel, dimensions, global, local, &number);
    handle own = NULL;
    handle *used = armed && !event ? &own : event;
    const status result = clEnqueueNDRangeKernel_call(queue, kernel, dimensions, offset, global, local, wait_count,
                                                      wait, used);
    if (armed) {
        struct waiting *waiting = malloc(sizeof *waiting);
        if (waiting)
            *waiting = (struct waiting){number, used == &own};
        if (!waiting || result || !clSetEventCallback_call ||
            clSetEventCallback_call(*used, COMPLETE, ended, waiting)) {
            struct ring_record record = {.record_kind = RING_TIMES, .launch = number};
            pthread_mutex_lock(&ring_lock);
            ring_append(&record);
            pthread_mutex_unlock(&ring_lock);
            if (own && clReleaseEvent_call)
                clReleaseEvent_call(own);
            free(waiting);
        }
    }
    return result;
}

__attribute__((visibility("default"))) handle clCreateCommandQueue(handle context, handle device, uint64_t properties,
                                                                   status *error)
{
    REAL(create_queue_function, clCreateCommandQueue);
    return clCreateCommandQueue_call(context, device, properties | PROFILING_ENABLE, error);
}

__attribute__((visibility("default"))) handle clCreateCommandQueueWithProperties(handle context, handle device,
                                                                                 const property *properties,
                                                                                 status *error)
{
    REAL(create_queue_with_function, clCreateCommandQueueWithProperties);
    property changed[64];
    uint32_t used = 0;
    int found = 0;
    for (; properties && properties[used] && used < 60; used += 2) {
        changed[used] = properties[used];
        changed[used + 1] = properties[used + 1];
        if (properties[used] == QUEUE_PROPERTIES) {
            changed[used + 1] |= PROFILING_ENABLE;
            found = 1;
        }
    }
    if (!found) {
        changed[used++] = QUEUE_PROPERTIES;
        changed[used++] = PROFILING_ENABLE;
    }
    changed[used] = 0;
    return clCreateCommandQueueWithProperties_call(context, device, changed, error);
}

__attribute__((destructor)) static void finish(void)
{
    pthread_mutex_lock(&ring_lock);
    if (ring.header)
        ring.header->finished = 1;
    pthread_mutex_unlock(&ring_lock);
}
