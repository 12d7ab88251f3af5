// Memory at places where few programs have any.
//
//     places low     4 MiB from address 4096 on; told "check", says "right", or how many pages are wrong
//     places left    4 MiB that were moved away and left mapped (MREMAP_DONTUNMAP), unmapped in pieces, and taken by
//                    something else. Told "move", "grow": the latter is unmapped, and what lies below grows over its
//                    place, where all is zeros then
//
// Both print "pid N" and "ready" first, and what they were told when it is done.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 4 << 20, WORDS = PAGE / 8 };

static void fill(char *memory, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 8) *(uint64_t *)(memory + at) = (seed << 40 | at) * 0x9e3779b97f4a7c15u | 1;
}

static size_t wrong(const char *memory, size_t bytes, uint64_t seed) {
    size_t pages = 0;
    for (size_t page = 0; page < bytes; page += PAGE) {
        int is_right = 1;
        for (size_t at = page; at < page + PAGE; at += 8) {
            uint64_t wanted = seed ? (seed << 40 | at) * 0x9e3779b97f4a7c15u | 1 : 0;
            is_right &= *(const uint64_t *)(memory + at) == wanted;
        }
        pages += !is_right;
    }
    return pages;
}

static void told(const char *word) {
    char line[32];
    if (!fgets(line, sizeof line, stdin)) exit(0);
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, word)) exit(4);
}

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

static void say_wrong(size_t pages) {
    if (pages) printf("%zu pages are wrong\n", pages);
    else puts("right");
    fflush(stdout);
}

static char *map(void *at, size_t bytes, int flags) {
    char *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return memory;
}

static void begin(void) {
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
}

static int low(void) {
    char *memory = map((void *)PAGE, BYTES, MAP_FIXED_NOREPLACE);
    fill(memory, BYTES, 1);
    begin();
    told("check");
    say_wrong(wrong(memory, BYTES, 1));
    return 0;
}

static int left(void) {
    char *below = map(NULL, 2 * BYTES, 0), *place = below + BYTES, *other = map(NULL, BYTES, 0);
    fill(below, BYTES, 1);
    fill(place, BYTES, 2);
    fill(other, BYTES, 3);
    begin();
    told("move");
    char *away = mremap(place, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (away == MAP_FAILED) return 5;
    munmap(place, BYTES / 2);
    munmap(place + BYTES / 2, BYTES / 2);
    if (mremap(other, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) return 5;
    say("move");
    told("grow");
    munmap(place, BYTES);
    if (mremap(below, BYTES, 2 * BYTES, 0) != below) return 6;
    say_wrong(wrong(place, BYTES, 0) + wrong(below, BYTES, 1) + wrong(away, BYTES, 2));
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    return strcmp(arguments[1], "low") == 0 ? low() : left();
}
