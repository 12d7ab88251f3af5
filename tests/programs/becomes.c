/* becomes BYTES: fills so much memory, says so, and when it is told to becomes `sleep` as somebody else, while a process that shares that
 * memory lives on and reads it. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile char *memory;
static size_t bytes;

static int stays(void *unused) {
    (void)unused;
    sleep(1);
    for (size_t i = 0; i < bytes; i += 4096) (void)memory[i];
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    bytes = strtoul(argv[1], NULL, 10);
    char *all = mmap(NULL, bytes + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 2;
    for (size_t i = 0; i < bytes; i++) all[i] = (char)(i * i >> 7);
    memory = all;
    puts("filled");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 2;
    if (clone(stays, all + bytes + 65536, CLONE_VM, NULL) < 0) return 2;
    execlp("setpriv", "setpriv", "--reuid", "65534", "sleep", "600", NULL);
    return 2;
}
