/* File systems that lack something: preloaded into a test's child.

   Calls on files below LACKING_FOLDER fail as on a file system that does not have them: with the error
   LACKING_ERROR those that LACKING_CALLS names (flock, ofd, mmap). All others go to the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int lacks(const char *call, int fd) {
    const char *calls = getenv("LACKING_CALLS"), *folder = getenv("LACKING_FOLDER");
    const char *error = getenv("LACKING_ERROR");
    char link[64], path[PATH_MAX];
    if (!calls || !folder || !error || !strstr(calls, call)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return strncmp(path, folder, strlen(folder)) ? 0 : atoi(error);
}

int flock(int fd, int operation) {
    int error = lacks("flock", fd);
    if (error) { errno = error; return -1; }
    return (int)syscall(SYS_flock, fd, operation);
}

#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK) { \
            int error = lacks("ofd", fd); \
            if (error) { errno = error; return -1; } \
        } \
        return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #name))(fd, command, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

#define MMAP(name) \
    void *name(void *start, size_t len, int access, int flags, int fd, off_t at) { \
        if (fd >= 0 && (flags & MAP_SHARED)) { \
            int error = lacks("mmap", fd); \
            if (error) { errno = error; return MAP_FAILED; } \
        } \
        return (void *)syscall(SYS_mmap, start, len, access, flags, fd, at); \
    }
MMAP(mmap)
MMAP(mmap64)
