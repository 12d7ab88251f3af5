// Memory that is replaced, at the same place, by memory that grows downwards, again and again; what was written there is looked
// at all the time. Many mappings besides, so that who looks through them takes long.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PLACES = 32, PAGES = 128, BESIDES = 600, SECONDS = 20 };
#define PAGE 4096ul
#define BYTES (PAGES * PAGE)

static struct {
    int grows;
    double since, until;
    uint64_t written[PAGES];
} places[PLACES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *put(char *at, unsigned long bytes, int flags) {
    int all = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | flags;
    char *got = mmap(at, bytes, PROT_READ | PROT_WRITE, all, -1, 0);
    if (got != at) exit(3);
    return got;
}

int main(void) {
    char line[16], *base = (char *)0x200000000ul;
    uint64_t count = 1;
    for (int i = 0; i < BESIDES; i++)
        *(char *)put((char *)0x300000000ul + i * 3 * PAGE, 2 * PAGE, 0) = i % 8 ? 0 : 1;
    char *large = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 3, 16 << 20);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (double end = now() + SECONDS; now() < end;)
        for (int k = 0; k < PLACES; k++) {
            char *at = base + k * 8 * (1 << 20);
            double t = now();
            if (t > places[k].until) {
                int grows = places[k].until > 0 && !places[k].grows;
                if (places[k].until > 0) munmap(at, BYTES);
                put(at, BYTES, grows ? MAP_GROWSDOWN : 0);
                places[k].grows = grows;
                places[k].since = t;
                places[k].until = t + (grows ? 0.3 : 0.02) + drand48() * 0.3;
                memset(places[k].written, 0, sizeof places[k].written);
                if (!grows) *at = 1;
            }
            if (!places[k].grows) continue;
            for (int page = 0; page < PAGES && page < (t - places[k].since) / 0.003; page++) {
                volatile uint64_t *word = (void *)(at + page * PAGE);
                if (*word != places[k].written[page]) {
                    printf("page %d has %lx, not %lx\n", page, *word, places[k].written[page]);
                    fflush(stdout);
                    return 2;
                }
                *word = places[k].written[page] = count++;
            }
        }
    puts("as written");
    fflush(stdout);
    return 0;
}
