/* Calls that fail: preloaded into a test's child, told by it which call is to fail.

   Problem: each call of a write must have failed once; the shipped module has no hook for that.
   Idea: stand between the program (Python, the core, HDF5's library) and the C library. Calls on
   files of one folder are counted; the one whose turn it is fails, or transfers half. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static int error_number; /* 0: transfer half */
static int stays;        /* all later calls fail, too */
static atomic_long turn, calls;

void failing_arm(const char *below, long number, int error, int for_good) {
    snprintf(folder, sizeof folder, "%s", below);
    error_number = error;
    stays = for_good;
    calls = 0;
    turn = number;
}

long failing_disarm(void) {
    turn = 0;
    return calls;
}

static int picked(const char *path) {
    long number = turn, mine;
    if (!number || strncmp(path, folder, strlen(folder)) != 0) return 0;
    mine = atomic_fetch_add(&calls, 1) + 1;
    return mine == number || (stays && mine > number);
}

static int picked_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!turn) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return picked(path);
}

/* A name in an open folder. */
static int picked_at(int dir, const char *path) {
    return *path == '/' || dir == AT_FDCWD ? picked(path) : picked_fd(dir);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
/* Errors go to all calls, halves to transfers only. */
#define FAIL(condition) \
    if ((condition) && error_number) { errno = error_number; return -1; }

#define TRANSFER(name, memory) \
    ssize_t name(int fd, memory data, size_t len, off_t at) { \
        int hit = picked_fd(fd); \
        FAIL(hit) \
        return REAL(name)(fd, data, hit && len > 1 ? len / 2 : len, at); \
    }
TRANSFER(pread, void *)
TRANSFER(pwrite, const void *)
TRANSFER(pread64, void *)
TRANSFER(pwrite64, const void *)

#define VECTOR(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) { \
        int hit = picked_fd(fd); \
        FAIL(hit) \
        struct iovec half = {parts[0].iov_base, (parts[0].iov_len + 1) / 2}; \
        return hit ? REAL(name)(fd, &half, 1, at, flags) : REAL(name)(fd, parts, count, at, flags); \
    }
VECTOR(preadv2)
VECTOR(pwritev2)

ssize_t write(int fd, const void *data, size_t len) {
    int hit = picked_fd(fd);
    FAIL(hit)
    return REAL(write)(fd, data, hit && len > 1 ? len / 2 : len);
}

/* One that succeeds does nothing: the machine does not crash in these tests, and thousands of them
   take minutes. */
#define SYNC(name) \
    int name(int fd) { FAIL(picked_fd(fd)) return 0; }
SYNC(fsync)
SYNC(fdatasync)

#define CUT(name) \
    int name(int fd, off_t len) { FAIL(picked_fd(fd)) return REAL(name)(fd, len); }
CUT(ftruncate)
CUT(ftruncate64)

int fallocate(int fd, int mode, off_t at, off_t len) {
    FAIL(picked_fd(fd))
    return REAL(fallocate)(fd, mode, at, len);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        unsigned mode = va_arg(rest, unsigned); \
        va_end(rest); \
        FAIL(picked(path)) \
        return REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        unsigned mode = va_arg(rest, unsigned); \
        va_end(rest); \
        FAIL(picked_at(dir, path)) \
        return REAL(name)(dir, path, flags, mode); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

int renameat(int here, const char *old, int there, const char *new) {
    FAIL(picked_at(there, new))
    return REAL(renameat)(here, old, there, new);
}

int rename(const char *old, const char *new) {
    FAIL(picked(new))
    return REAL(rename)(old, new);
}

int renameat2(int here, const char *old, int there, const char *new, unsigned flags) {
    FAIL(picked_at(there, new))
    return REAL(renameat2)(here, old, there, new, flags);
}
