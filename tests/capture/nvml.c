/* Stands in for the driver's library: two GPUs, the second one in MIG mode, no GPM; INIT is what nvmlInit says. */
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
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
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = (void *)(long)(index + 1);
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    (void)device;
    strncpy(name, "NVIDIA H100", length);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    strncpy(uuid, device == (void *)1 ? "GPU-1" : device == (void *)2 ? "GPU-2" : "MIG-7", length);
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
    *handle = (void *)77;
    return index ? 6 : 0;
}

int nvmlDeviceGetUtilizationRates(void *device, rates *found)
{
    found->gpu = 63;
    found->memory = 21;
    return device == (void *)77 ? 3 : 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 350500;
    return 0;
}

