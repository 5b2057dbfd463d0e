/* The bare loop of copy_loop.py: copies ranges of a file into a buffer of one batch, from a memory map (how = map)
 * or by a system call for each range (how = pread), which is what can be done without mapping.
 *
 *     gcc -O3 -pthread -o copy_loop copy_loop.c && ./copy_loop map FILE RANGES BATCH THREADS ROUNDS
 *
 * RANGES holds pairs of native 64-bit numbers, offset and length, in the order to copy. Threads take whole
 * batches in turn, each into a buffer of its own. Prints the seconds of each round; the first meets the page
 * faults of the map. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct range {
    uint64_t offset, length;
};

static const char *data;
static int file_read = -1;
static const struct range *ranges;
static uint64_t count, batch, most;
static atomic_ullong next;
static atomic_ullong checksum;

static const void *map(const char *path, uint64_t *size) {
    int file = open(path, O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about)) {
        perror(path);
        exit(1);
    }
    *size = about.st_size;
    const void *bytes = mmap(0, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(file);
    return bytes;
}

static void *copy(void *buffer) {
    uint64_t sum = 0;
    for (;;) {
        uint64_t begin = atomic_fetch_add(&next, batch), used = 0;
        if (begin >= count)
            break;
        uint64_t end = begin + batch < count ? begin + batch : count;
        for (uint64_t i = begin; i < end; i++) {
            char *to = (char *)buffer + used;
            struct iovec slice = {to, ranges[i].length};
            if (file_read < 0)
                memcpy(to, data + ranges[i].offset, ranges[i].length);
            else if (preadv2(file_read, &slice, 1, ranges[i].offset, RWF_NOWAIT) != (ssize_t)ranges[i].length &&
                     pread(file_read, to, ranges[i].length, ranges[i].offset) != (ssize_t)ranges[i].length)
                exit(fprintf(stderr, "a range cannot be read\n"));
            used += ranges[i].length;
        }
        for (uint64_t at = 0; at < used; at += 4096)
            sum += ((unsigned char *)buffer)[at];
    }
    atomic_fetch_add(&checksum, sum);
    return 0;
}

int main(int arguments, char **argument) {
    if (arguments != 7)
        return fprintf(stderr, "copy_loop map|pread FILE RANGES BATCH THREADS ROUNDS\n"), 2;
    uint64_t size, bytes;
    if (!strcmp(*++argument, "pread")) {
        file_read = open(argument[1], O_RDONLY);
        posix_fadvise(file_read, 0, 0, POSIX_FADV_RANDOM);
    }
    data = map(argument[1], &size);
    ranges = map(argument[2], &bytes);
    count = bytes / sizeof(struct range);
    batch = strtoull(argument[3], 0, 10);
    int threads = atoi(argument[4]), rounds = atoi(argument[5]);
    for (uint64_t i = 0; i < count; i++) {
        if (ranges[i].length > size || ranges[i].offset > size - ranges[i].length)
            return fprintf(stderr, "range %llu is beyond the file\n", (unsigned long long)i), 1;
        most = ranges[i].length > most ? ranges[i].length : most;
    }
    char *buffers[threads];
    for (int i = 0; i < threads; i++)
        memset(buffers[i] = malloc(most * batch), 1, most * batch);
    for (int round = 0; round < rounds; round++) {
        pthread_t running[threads];
        struct timespec begin, end;
        next = 0;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < threads; i++)
            pthread_create(&running[i], 0, copy, buffers[i]);
        for (int i = 0; i < threads; i++)
            pthread_join(running[i], 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.6f\n", (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) * 1e-9);
    }
    fprintf(stderr, "checksum %llu\n", (unsigned long long)checksum);
    return 0;
}
