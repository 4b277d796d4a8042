/* Preloaded: lets a process live until its n-th call that changes a file, then kills it or lets the call fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1;  /* calls still allowed; -1: no limit */
static int failure;     /* 0: kill, otherwise errno of the call that fails */
static long calls;

void stop_at(long allowed, int error) { left = allowed; failure = error; calls = 0; }
long stop_calls(void) { return calls; }

static int stops(void) {
    calls++;
    if (left < 0 || left-- > 0) return 0;
    if (!failure) kill(getpid(), SIGKILL);
    left = -1;
    errno = failure;
    return 1;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t at) {
    static ssize_t (*call)(int, const void *, size_t, off_t);
    if (!call) call = real("pwrite64");
    if (!stops()) return call(file, bytes, count, at);
    return -1;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

int fdatasync(int file) {
    static int (*call)(int);
    if (!call) call = real("fdatasync");
    return stops() ? -1 : call(file);
}

int fsync(int file) {
    static int (*call)(int);
    if (!call) call = real("fsync");
    return stops() ? -1 : call(file);
}

int ftruncate64(int file, off_t size) {
    static int (*call)(int, off_t);
    if (!call) call = real("ftruncate64");
    return stops() ? -1 : call(file, size);
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
