/* Stands in for the driver's library: two GPUs, the second one in MIG mode; INIT is what nvmlInit says, and
 * with GPM there are GPM's samples: of instance 4 for the second GPU, and no tensor use of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
static unsigned devices = 2, lost_from = 2;
static int listed_twice;

/* So many devices, those from `lost` on fallen off the bus, and each of them in the list twice with `twice`. */
void standin_devices(unsigned count, unsigned lost, int twice)
{
    devices = count;
    lost_from = lost;
    listed_twice = twice;
}

int nvmlInit_v2(void)
{
    return INIT;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return INIT;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = devices << listed_twice;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    index >>= listed_twice;
    *handle = (void *)(long)(index + 1);
    return index >= lost_from ? 15 : 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    (void)device;
    strncpy(name, "NVIDIA H100", length);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    if (device == (void *)7777)
        strncpy(uuid, "MIG-7", length);
    else
        snprintf(uuid, length, "GPU-%ld", (long)device);
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next)
{
    *now = *next = device == (void *)2;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    (void)device;
    *count = 2;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **handle)
{
    (void)device;
    *handle = (void *)7777;
    return index ? 6 : 0;
}

int nvmlDeviceGetUtilizationRates(void *device, rates *found)
{
    found->gpu = 63;
    found->memory = 21;
    return device == (void *)7777 ? 3 : 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 350500;
    return 0;
}

#ifdef GPM
typedef struct {
    unsigned version, count;
    long *before, *after;
    struct {
        unsigned id;
        int status;
        double value;
        char *texts[3];
    } metrics[];
} metrics_request;

int nvmlDeviceGetGpuInstanceId(void *device, unsigned *number)
{
    *number = 4;
    return device == (void *)7777 ? 0 : 2;
}

int nvmlGpmQueryDeviceSupport(void *device, unsigned support[2])
{
    support[1] = device == (void *)1 || device == (void *)2;
    return 0;
}

int nvmlGpmSampleAlloc(long **sample)
{
    *sample = calloc(1, sizeof **sample);
    return 0;
}

int nvmlGpmSampleFree(long *sample)
{
    free(sample);
    return 0;
}

int nvmlGpmSampleGet(void *device, long *sample)
{
    static long taken;
    *sample = taken += 100;
    return device == (void *)1 ? 0 : 3;
}

int nvmlGpmMigSampleGet(void *device, unsigned instance, long *sample)
{
    static long taken;
    *sample = taken += 1;
    return device == (void *)2 && instance == 4 ? 0 : 2;
}

/* DRAM (10) by the distance of the samples, tensor use (5) of the whole GPU only */
int nvmlGpmMetricsGet(metrics_request *request)
{
    long passed = *request->after - *request->before;
    for (unsigned at = 0; at < request->count; at++) {
        request->metrics[at].value = request->metrics[at].id + (double)passed / 1000;
        request->metrics[at].status = request->metrics[at].id == 5 && passed < 100 ? 3 : 0;
    }
    return 0;
}
#endif
