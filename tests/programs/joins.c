// Moves registered memory and what it has mapped beside it since by one mremap, which without Clew is one mapping.
//
//     joins BYTES
//
// On standard input:  "grow"  both parts become larger, elsewhere
//                     "move"  both go to a place that is given, the part that is new first
// It answers "moved" or "half", or how the kernel refused, and how many bytes are not as written.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *map_at(char *at, size_t bytes, int fixed) {
    char *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    if (got == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return got;
}

// Every byte tells where it was written.
static char written(size_t at) {
    return (char)(at / 4096 * 7 + at % 251 + 1);
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
    if (bytes < 4096 || bytes % 4096) {
        fprintf(stderr, "joins: BYTES is a multiple of 4096\n");
        return 2;
    }
    // The part in the middle is there from the beginning; those beside it come later.
    char *place = mmap(NULL, 3 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED || munmap(place, 3 * bytes)) {
        perror("finding a place");
        return 1;
    }
    char *middle = map_at(place + bytes, bytes, MAP_FIXED_NOREPLACE);
    for (size_t at = 0; at < bytes; at++) middle[at] = written(bytes + at);
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
        int grows = !strcmp(line, "grow\n");
        size_t first = grows ? bytes : 0;
        char *fresh = map_at(grows ? middle + bytes : place, bytes, MAP_FIXED_NOREPLACE);
        for (size_t at = 0; at < bytes; at++) fresh[at] = written(grows ? 2 * bytes + at : at);
        char *from = place + first, *to = NULL, *got;
        if (grows) {
            got = mremap(from, 2 * bytes, 3 * bytes, MREMAP_MAYMOVE);
        } else {
            to = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            got = mremap(from, 2 * bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        }
        if (got == MAP_FAILED) {
            unsigned char is_there;
            int error = errno, is_half = mincore(from, 4096, &is_there) && errno == ENOMEM;
            printf("%s: %s\n", is_half ? "half" : "refused", strerror(error));
            fflush(stdout);
            continue;
        }
        size_t bad = 0;
        for (size_t at = 0; at < 2 * bytes; at++) bad += got[at] != written(first + at);
        printf("moved, bad %zu\n", bad);
        fflush(stdout);
    }
    return 0;
}
