// A program that puts memory of its own where its agent has its buffer: replaces.
//
// Says "ready" when it has mapped 24 MiB, waited until there is a buffer, and replaced all of it but its last page, which
// is the agent's call word. Then it writes all of its memory again and again, until it is killed.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const size_t bytes = 24 << 20;

// Whether it was there.
static int replace(void) {
    char line[512];
    unsigned long start, end;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) perror("maps"), exit(3);
    while (!found && fgets(line, sizeof line, maps))
        found = strstr(line, "clew-buffer") && sscanf(line, "%lx-%lx", &start, &end) == 2;
    fclose(maps);
    if (!found) return 0;
    size_t room = end - start - PAGE;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap((void *)start, room, prot, flags, -1, 0) == MAP_FAILED) perror("mmap"), exit(3);
    memset((void *)start, 9, room);
    return 1;
}

int main(void) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) perror("mmap"), exit(3);
    memset(memory, 1, bytes);
    printf("pid %d\n", (int)getpid());
    while (!replace()) usleep(20000);
    puts("ready");
    fflush(stdout);
    for (int value = 2;; value++) {
        memset(memory, value, bytes);
        usleep(100000);
    }
}
