/* The device alone: given requests, done past the page cache at full depth into or from memory that
 * is in place already, nothing copied, nothing kept. What a cold section, or a flushed write, cannot
 * be faster than, measured in the same run as everybody else. Raw io_uring calls: no library needed.
 * No part of outcore. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH = 128 };

/* Reads or writes `n` requests; request k has `memory + (k % slots) * slot`. 0 or -errno. */
int64_t floor_run(int fd, int write, int64_t n, const int64_t *offset, const int64_t *len,
                  char *memory, int64_t slot, int64_t slots) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int ring = (int)syscall(__NR_io_uring_setup, DEPTH, &p);
    if (ring < 0) return -errno;
    size_t sq_len = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    size_t cq_len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t sqe_len = p.sq_entries * sizeof(struct io_uring_sqe);
    char *sq = mmap(0, sq_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(0, cq_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqes =
        mmap(0, sqe_len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    int64_t result = -ENOMEM;
    if (sq == MAP_FAILED || cq == MAP_FAILED || sqes == MAP_FAILED) goto out;
    uint32_t *sq_tail = (uint32_t *)(sq + p.sq_off.tail), *array = (uint32_t *)(sq + p.sq_off.array);
    uint32_t *cq_head = (uint32_t *)(cq + p.cq_off.head), *cq_tail = (uint32_t *)(cq + p.cq_off.tail);
    uint32_t sq_mask = *(uint32_t *)(sq + p.sq_off.ring_mask);
    uint32_t cq_mask = *(uint32_t *)(cq + p.cq_off.ring_mask);
    struct io_uring_cqe *cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    int64_t depth = slots < DEPTH ? slots : DEPTH, sent = 0, done = 0;
    result = 0;
    while (done < n && result == 0) {
        uint32_t tail = *sq_tail, fresh = 0;
        while (sent < n && sent - done < depth) {
            struct io_uring_sqe *e = &sqes[tail & sq_mask];
            memset(e, 0, sizeof *e);
            e->opcode = write ? IORING_OP_WRITE : IORING_OP_READ;
            e->fd = fd;
            e->off = (uint64_t)offset[sent];
            e->len = (uint32_t)len[sent];
            e->addr = (uint64_t)(uintptr_t)(memory + sent % slots * slot);
            array[tail & sq_mask] = tail & sq_mask;
            tail++, fresh++, sent++;
        }
        __atomic_store_n(sq_tail, tail, __ATOMIC_RELEASE);
        long r = syscall(__NR_io_uring_enter, ring, fresh, 1, IORING_ENTER_GETEVENTS, 0, 0);
        if (r < 0 && errno != EINTR) result = -errno;
        uint32_t head = *cq_head;
        while (head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) {
            if (cqes[head & cq_mask].res < 0) result = cqes[head & cq_mask].res;
            head++, done++;
        }
        __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    }
out:
    if (sqes != MAP_FAILED) munmap(sqes, sqe_len);
    if (cq != MAP_FAILED) munmap(cq, cq_len);
    if (sq != MAP_FAILED) munmap(sq, sq_len);
    close(ring); /* waits for what is in flight */
    return result;
}
