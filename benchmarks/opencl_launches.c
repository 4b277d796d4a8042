/* For each line of stdin: so many launches of 60 kernels, and the nanoseconds of CPU that one took. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int32_t clEnqueueNDRangeKernel(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                               void *const *, void **);

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

int main(void)
{
    static char kernels[60 * 64];
    const size_t items = 64;
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        const long launches = strtol(line, NULL, 10);
        const double began = now_ns();
        for (long launch = 0; launch < launches; launch++)
            clEnqueueNDRangeKernel(kernels, kernels + 64 * (launch % 60), 1, NULL, &items, NULL, 0, NULL, NULL);
        printf("%f\n", (now_ns() - began) / (double)launches);
        fflush(stdout);
    }
    return 0;
}
