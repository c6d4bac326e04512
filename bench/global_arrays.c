/*
 * Sections of a disk resident array by Global Arrays' own DRA library, as a peer of `./x bench disk-arrays`.
 *
 * Sections of 5000 x 5000 doubles of 10000 x 10000, aligned with the corner and not, plain and transposed: read warm, read
 * cold, and written with fsync. Medians of seven, ms. It needs a system package (Debian: libglobalarrays-dev,
 * libarmci-mpi-dev, libscalapack-openmpi-dev, libopenmpi-dev), so it is run by hand:
 *
 *     mpicc -O2 bench/global_arrays.c -o dra -lga-openmpi -larmci-openmpi -lscalapack-openmpi -llapack -lblas -lgfortran -lm
 *     mpiexec -n 4 ./dra FOLDER/file
 *
 * DRA keeps a file for each rank beside that name.
 */
#include <fcntl.h>
#include <glob.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ga.h"
#include "macdecls.h"
#include "dra.h"

enum { WHOLE = 10000, PART = 5000, RUNS = 7 };
enum { WARM, COLD, WRITE };
static const char *const NAMES[] = {"read, warm", "read, cold", "write, fsync"};

/* Flush all files of the array; `forget`: take them out of the page cache, too. */
static void settle(const char *path, int forget) {
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s*", path);
    if (glob(pattern, 0, NULL, &found)) {
        fprintf(stderr, "no file %s\n", pattern);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = open(found.gl_pathv[i], O_RDWR);
        if (fd < 0 || fsync(fd)) {
            perror(found.gl_pathv[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (forget) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        close(fd);
    }
    globfree(&found);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of one access to the section that begins at (corner, corner). */
static double once(int memory, int disk, const char *path, int kind, int corner, int transposed) {
    int low[2] = {0, 0}, high[2] = {PART - 1, PART - 1}, request;
    dra_size_t from[2] = {corner, corner}, to[2] = {corner + PART - 1, corner + PART - 1};
    if (kind == COLD && GA_Nodeid() == 0) {
        settle(path, 1);
    }
    GA_Sync();
    double begin = MPI_Wtime();
    if (kind == WRITE) {
        NDRA_Write_section(transposed, memory, low, high, disk, from, to, &request);
    } else {
        NDRA_Read_section(transposed, memory, low, high, disk, from, to, &request);
    }
    DRA_Wait(request);
    if (kind == WRITE && GA_Nodeid() == 0) {
        settle(path, 0);
    }
    GA_Sync();
    return (MPI_Wtime() - begin) * 1e3;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    GA_Initialize();
    MA_init(MT_C_DBL, 50000000, 50000000);
    DRA_Init(4, 1e10, 1e11, 1e8);
    int lengths[2] = {PART, PART}, disk;
    int memory = NGA_Create(C_DBL, 2, lengths, "memory", NULL);
    double value = 1.5;
    GA_Fill(memory, &value);
    dra_size_t shape[2] = {WHOLE, WHOLE}, typical[2] = {PART, PART};
    if (argc != 2 || NDRA_Create(C_DBL, 2, shape, "disk", argv[1], DRA_RW, typical, &disk)) {
        fprintf(stderr, "usage: dra FOLDER/file\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int row = 0; row < 2; row++) {
        for (int column = 0; column < 2; column++) {
            int low[2] = {0, 0}, high[2] = {PART - 1, PART - 1}, request;
            dra_size_t from[2] = {row * PART, column * PART};
            dra_size_t to[2] = {from[0] + PART - 1, from[1] + PART - 1};
            NDRA_Write_section(0, memory, low, high, disk, from, to, &request);
            DRA_Wait(request);
        }
    }
    for (int k = 0; k < 12; k++) {
        int kind = k / 4, corner = k / 2 % 2 ? 1000 : 0, transposed = k % 2;
        double taken[RUNS];
        for (int run = 0; run < RUNS; run++) {
            taken[run] = once(memory, disk, argv[1], kind, corner, transposed);
        }
        qsort(taken, RUNS, sizeof *taken, by_size);
        if (GA_Nodeid() == 0) {
            printf("%s, %s, %s: %.0f (%.0f to %.0f)\n", NAMES[kind], corner ? "non-aligned" : "aligned",
                   transposed ? "transposed" : "plain", taken[RUNS / 2], taken[0], taken[RUNS - 1]);
        }
    }
    DRA_Delete(disk);
    DRA_Terminate();
    GA_Terminate();
    MPI_Finalize();
    return 0;
}
