// Maps memory piece by piece, next to each other, gives pieces back, and knows what each must hold.
//
//     pieces PIECES
//
// PIECES of 16 pages at most are there at once. Prints "pid N", "running", and on SIGTERM
// "OK maps=..."; or what was found, and ends with status 1.

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 16 * 4096 / sizeof(uint64_t) };

struct piece {
    uint64_t *words, number;
};

static volatile sig_atomic_t told;

static void stop(int signal) {
    (void)signal;
    told = 1;
}

static uint64_t word(uint64_t number, size_t i) { return (number << 20 | i) * 0x9e3779b97f4a7c15u + 1; }

static void check(const struct piece *piece) {
    for (size_t i = 0; i < WORDS; i += 64)
        if (piece->words[i] != word(piece->number, i)) {
            printf("WRONG piece %lu at %p: %lx\n", piece->number, (void *)(piece->words + i), piece->words[i]);
            exit(1);
        }
}

int main(int argc, char **argv) {
    size_t most = argc > 1 ? strtoul(argv[1], NULL, 10) : 256, count = 0;
    struct piece *pieces = calloc(most, sizeof *pieces);
    uint64_t number = 0, random = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, stop);
    printf("pid %d\nrunning\n", getpid());
    while (!told) {
        if (count == most) {
            for (size_t i = 0; i < most; i++) check(pieces + i);
            // Half of them go, from anywhere.
            while (count > most / 2) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                struct piece *gone = pieces + (random >> 33) % count;
                munmap(gone->words, WORDS * sizeof(uint64_t));
                *gone = pieces[--count];
            }
        }
        void *at = mmap(NULL, WORDS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return 2;
        struct piece *piece = pieces + count++;
        *piece = (struct piece){at, ++number};
        for (size_t i = 0; i < WORDS; i += 64) piece->words[i] = word(number, i);
        usleep(200);
    }
    for (size_t i = 0; i < count; i++) check(pieces + i);
    printf("OK maps=%lu\n", number);
    return 0;
}
