// A program that writes its own memory through /proc/self/mem, as Julia writes what it compiles: own_mem MODE.
//
//     early   opens that file at once
//     late    opens it when it is told to
//
// Prints "pid N" and "ready" when 16 MiB are filled. Lines it is told: "open"; "map" maps 4 MiB and uses
// every second page of them; "new" writes every fourth of the others through the file, and says how many could not be written; "old" writes to
// what was filled, and puts it right again; "check" reads everything; "quit".

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, NEW = 1024 };

static int file = -1;

static void open_it(void) {
    if (file < 0) file = open("/proc/self/mem", O_RDWR | O_SYNC | O_CLOEXEC);
    if (file < 0) perror("/proc/self/mem"), exit(3);
}

static char *map(size_t pages) {
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(3);
    return memory;
}

// Half of each page is the same in all, so that it compresses.
static void fill(uint32_t *to, size_t page) {
    for (size_t i = 0; i < PAGE / 4; i++) to[i] = i % 2 ? (uint32_t)(page * 2654435761u + i * 40503u) : 7;
}

static int is_filled(const char *memory, size_t page) {
    uint32_t wanted[PAGE / 4];
    fill(wanted, page);
    return memcmp(memory + page * PAGE, wanted, PAGE) == 0;
}

// How many of every so many pages could not be written, or are not what was written.
static int write_pages(char *memory, size_t pages, size_t step) {
    int refused = 0;
    for (size_t page = 0; page < pages; page += step) {
        uint32_t bytes[PAGE / 4];
        fill(bytes, page);
        refused += pwrite(file, bytes, PAGE, (off_t)(uintptr_t)(memory + page * PAGE)) != PAGE
                || !is_filled(memory, page);
    }
    return refused;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    if (strcmp(arguments[1], "early") == 0) open_it();
    char *memory = map(PAGES);
    for (size_t page = 0; page < PAGES; page++) fill((uint32_t *)(memory + page * PAGE), page);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    char line[64], *new = NULL;
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "open\n") == 0) {
            open_it();
            printf("open\n");
        } else if (strcmp(line, "map\n") == 0) {
            new = map(NEW);
            for (size_t page = 1; page < NEW; page += 2) new[page * PAGE] = 1;
            printf("mapped\n");
        } else if (strcmp(line, "new\n") == 0) {
            printf("refused %d\n", write_pages(new, NEW, 4));
        } else if (strcmp(line, "old\n") == 0) {
            printf("refused %d\n", write_pages(memory, PAGES, 1));
        } else if (strcmp(line, "check\n") == 0) {
            int bad = 0;
            for (size_t page = 0; page < PAGES; page++) bad += !is_filled(memory, page);
            printf("bad %d\n", bad);
        } else if (strcmp(line, "quit\n") == 0) {
            return 0;
        }
        fflush(stdout);
    }
    return 0;
}
