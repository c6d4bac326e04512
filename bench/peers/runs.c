/* The plain way, at C speed: one pread or pwrite per contiguous run of a 2-d to 4-d section.
 * What a careful programmer writes by hand; a peer of the benchmarks, no part of outcore. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

typedef ssize_t (*io_call)(int, void *, size_t, off_t);

static ssize_t put(int fd, void *p, size_t n, off_t at) { return pwrite(fd, p, n, at); }
static ssize_t get(int fd, void *p, size_t n, off_t at) { return pread(fd, p, n, at); }

/* Runs of `len` bytes at offset + sum(index * stride); memory is filled densely in that order. */
int64_t runs(int fd, int write, int ndim, const int64_t *count, const int64_t *stride,
             int64_t offset, int64_t len, char *memory) {
    io_call call = write ? put : get;
    int64_t index[8] = {0};
    int64_t calls = 0;
    for (;;) {
        int64_t at = offset;
        for (int d = 0; d < ndim; d++) at += index[d] * stride[d];
        for (int64_t done = 0; done < len;) {
            ssize_t n = call(fd, memory + done, (size_t)(len - done), at + done);
            if (n <= 0) return -1;
            done += n;
        }
        memory += len;
        calls++;
        int d = ndim - 1;
        while (d >= 0 && ++index[d] == count[d]) index[d--] = 0;
        if (d < 0) return calls;
    }
}
