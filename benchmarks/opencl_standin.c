/* Stands in for an OpenCL library whose launches cost nothing, so that only what capture adds is measured. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int32_t clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset, const size_t *global,
                               const size_t *local, uint32_t waits, void *const *wait, void **event)
{
    (void)queue, (void)kernel, (void)dimensions, (void)offset, (void)global, (void)local, (void)waits, (void)wait;
    if (event)
        *event = NULL;
    return 0;
}

int32_t clGetKernelInfo(void *kernel, uint32_t what, size_t room, void *value, size_t *size)
{
    (void)what, (void)size;
    strncpy(value, (uintptr_t)kernel & 64 ? "gemm_128x64_tn" : "reduce_1024", room);
    return 0;
}

int32_t clGetCommandQueueInfo(void *queue, uint32_t what, size_t room, void *value, size_t *size)
{
    (void)what, (void)size;
    memcpy(value, &queue, room);
    return 0;
}

int32_t clGetDeviceInfo(void *device, uint32_t what, size_t room, void *value, size_t *size)
{
    (void)device, (void)what, (void)room, (void)value, (void)size;
    return -1;
}

int32_t clSetEventCallback(void *event, int32_t state, void (*call)(void *, int32_t, void *), void *data)
{
    (void)event, (void)state, (void)call, (void)data;
    return -1;
}

int32_t clReleaseEvent(void *event)
{
    (void)event;
    return 0;
}
