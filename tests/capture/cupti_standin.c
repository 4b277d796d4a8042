/* Stands in for libcupti: a GPU and an instance of a divided one (MIG), and one buffer of hand-filled kernel
 * records, delivered at the flush; one of them comes twice. */
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_version.h>
#include <semaphore.h>
#include <string.h>

static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static size_t position;
static sem_t disabled;

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc a, CUpti_BuffersCallbackCompleteFunc b)
{
    request = a;
    complete = b;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    (void)kind;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
        sem_post(&disabled);
    return CUPTI_SUCCESS;
}

/* For the test: returns once no kernels are to be recorded any more. */
void wait_until_disabled(void)
{
    sem_wait(&disabled);
}

CUptiResult cuptiActivityFlushPeriod(uint32_t time)
{
    (void)time;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version)
{
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = 2;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    if (position >= valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(buffer + position);
    position += (*record)->kind == CUPTI_ACTIVITY_KIND_DEVICE ? sizeof(CUpti_ActivityDevice5) : sizeof(CUpti_ActivityKernel9);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    static const char *const names[] = {"gemm", "relu", "gemm", "gemm"};
    static const uint32_t correlations[] = {12, 10, 11, 11}, devices[] = {0, 0, 1, 1};
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0, used = 0;
    (void)flag;
    request(&buffer, &size, &most);
    memset(buffer, 0, 65536);
    for (uint32_t at = 0; at < 2; at++, used += sizeof(CUpti_ActivityDevice5)) {
        CUpti_ActivityDevice5 *device = (CUpti_ActivityDevice5 *)(buffer + used);
        device->kind = CUPTI_ACTIVITY_KIND_DEVICE;
        device->name = "NVIDIA H100";
        device->id = at;
        device->uuid.bytes[0] = 0x5A;
        device->isMigEnabled = at == 1;
        device->migUuid.bytes[15] = 0x77;
    }
    for (int at = 0; at < 4; at++) {
        CUpti_ActivityKernel9 *kernel = (CUpti_ActivityKernel9 *)(buffer + used);
        kernel->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        kernel->name = names[at];
        kernel->deviceId = devices[at];
        kernel->correlationId = correlations[at];
        kernel->start = 1000u * correlations[at];
        kernel->end = kernel->start + 250;
        kernel->gridX = 7;
        kernel->blockX = 128;
        kernel->streamId = 3;
        used += sizeof *kernel;
    }
    position = 0;
    complete(NULL, 0, buffer, size, used);
    return CUPTI_SUCCESS;
}
