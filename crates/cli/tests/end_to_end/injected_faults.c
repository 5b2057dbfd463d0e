/* Preloaded into a command: lets its n-th call of a kind fail. Built and used by injected_faults.rs.
 *
 * FAULT=KIND:N:WHAT    WHAT is an error number, "kill", or "short" for reads and writes of fewer bytes
 * COUNTS=FILE          receives the calls of each kind at the end, one number a line
 *
 * io_uring is refused, since its reads are no calls. Calls on standard streams are let through, and anonymous mappings,
 * without which no thread starts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME, MMAP, FLOCK, MKDIR, UNLINK, TRUNCATE, CONNECT, RECV, KINDS };
static atomic_long calls[KINDS];
static long kind = -1, at;
static int error;
static char what[8];

__attribute__((constructor)) static void begin(void) {
    const char *fault = getenv("FAULT");
    if (fault && sscanf(fault, "%ld:%ld:%7s", &kind, &at, what) == 3) error = atoi(what);
}

__attribute__((destructor)) static void end(void) {
    const char *file = getenv("COUNTS");
    if (!file) return;
    FILE *out = fopen(file, "w");
    for (int i = 0; out && i < KINDS; i++) fprintf(out, "%ld\n", calls[i]);
    if (out) fclose(out);
}

/* Whether this call fails: -1 with errno, or 1 if it is to be short. */
static int fails(int of) {
    long number = atomic_fetch_add(&calls[of], 1) + 1;
    if (of != kind || number != at) return 0;
    if (!strcmp(what, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "short")) return 1;
    errno = error;
    return -1;
}

#define NEXT(name) static __typeof__(name) *next; if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define CALL(of, type, name, parameters, ...) \
    type name parameters { NEXT(name); if (fails(of) < 0) return (type)-1; return next(__VA_ARGS__); }
/* Of files, and of a length that can be short. */
#define MOVE(of, name, parameters, ...) \
    ssize_t name parameters { \
        NEXT(name); \
        int failed = fd > 2 ? fails(of) : 0; \
        if (failed < 0) return -1; \
        if (failed && n > 1) n = n / 2; \
        return next(__VA_ARGS__); \
    }

#define OPENS(name, first, ...) \
    int name(first const char *path, int flags, ...) { \
        NEXT(name); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5) && fails(OPEN) < 0) return -1; \
        return next(__VA_ARGS__, flags, mode); \
    }
OPENS(open, , path)
OPENS(open64, , path)
#define FOLDER int folder,
OPENS(openat, FOLDER, folder, path)
OPENS(openat64, FOLDER, folder, path)

MOVE(READ, read, (int fd, void *to, size_t n), fd, to, n)
MOVE(READ, pread, (int fd, void *to, size_t n, off_t from), fd, to, n, from)
MOVE(READ, pread64, (int fd, void *to, size_t n, off64_t from), fd, to, n, from)
MOVE(WRITE, write, (int fd, const void *of, size_t n), fd, of, n)
MOVE(WRITE, pwrite, (int fd, const void *of, size_t n, off_t to), fd, of, n, to)
MOVE(WRITE, pwrite64, (int fd, const void *of, size_t n, off64_t to), fd, of, n, to)
MOVE(WRITE, writev, (int fd, const struct iovec *of, int n), fd, of, n)
MOVE(RECV, recv, (int fd, void *to, size_t n, int flags), fd, to, n, flags)
CALL(FSYNC, int, fsync, (int fd), fd)
CALL(FSYNC, int, fdatasync, (int fd), fd)
CALL(RENAME, int, rename, (const char *from, const char *to), from, to)
CALL(FLOCK, int, flock, (int fd, int how), fd, how)
CALL(MKDIR, int, mkdir, (const char *path, mode_t mode), path, mode)
CALL(UNLINK, int, unlink, (const char *path), path)
CALL(TRUNCATE, int, ftruncate, (int fd, off_t n), fd, n)
CALL(TRUNCATE, int, ftruncate64, (int fd, off64_t n), fd, n)
CALL(CONNECT, int, connect, (int fd, const struct sockaddr *to, socklen_t n), fd, to, n)

void *mmap(void *to, size_t n, int protection, int flags, int fd, off_t from) {
    NEXT(mmap);
    return fd >= 0 && fails(MMAP) < 0 ? MAP_FAILED : next(to, n, protection, flags, fd, from);
}

long syscall(long number, ...) {
    NEXT(syscall);
    va_list more;
    va_start(more, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_io_uring_setup) { errno = ENOSYS; return -1; }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
