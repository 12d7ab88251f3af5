// A program whose memory is locked by another: locked_memory DIRECTORY GO
//
// It serves a file itself (slow_files.h) and maps it; fills 16 MiB, prints "pid N" and "ready". The line "lock" has it map as
// much again, and a child read a page of that file out of its memory, which keeps that locked until there is a file GO: "stuck".
// "fill" fills the second half ("filled"); "sum" prints the sum of both. It ends with its input.

#include "slow_files.h"

enum { BYTES = 16 << 20 };

static const char *go;

static void late(void) {
    dprintf(1, "stuck\n");
    while (access(go, F_OK)) usleep(10000);
}

static void fill(uint32_t *memory, uint32_t x) {
    for (uint32_t i = 0; i < BYTES / 4; i++) memory[i] = x = x * 1103515245u + 12345u;
}

int main(int count, char **words) {
    char path[512], line[64];
    if (count != 3) return 2;
    go = words[2];
    char *late_page = map_slow(words[1]);
    int both = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    uint32_t *memory = mmap(NULL, BYTES, both, private, -1, 0);
    uint32_t *second = NULL;
    if (memory == MAP_FAILED) return 3;
    fill(memory, 1);
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!strcmp(line, "lock\n")) {
            char byte;
            // So that the next is a mapping of its own.
            mmap(NULL, 4096, PROT_NONE, private, -1, 0);
            second = mmap(NULL, BYTES, both, private, -1, 0);
            if (second == MAP_FAILED) return 3;
            snprintf(path, sizeof path, "/proc/%d/mem", (int)getpid());
            if (fork() == 0) _exit(pread(open(path, O_RDONLY), &byte, 1, (off_t)late_page) != 1);
            continue;
        }
        if (!strcmp(line, "fill\n")) {
            fill(second, 2);
            printf("filled\n");
            fflush(stdout);
            continue;
        }
        uint64_t sum = 0;
        for (uint32_t i = 0; i < BYTES / 4; i++) sum = sum * 31 + memory[i];
        for (uint32_t i = 0; i < BYTES / 4; i++) sum = sum * 31 + second[i];
        printf("sum %016llx\n", (unsigned long long)sum);
        fflush(stdout);
    }
    return 0;
}
