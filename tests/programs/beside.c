// Has what it allocates right behind the variables of the C library: mappings grow upwards in it.
//
// Prints "pid N" and "ready" when 16 MiB are filled, and "bad N" for each line it is told: so many bytes are not what
// was written there. "quit" ends it.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

enum { LAYOUT = ADDR_COMPAT_LAYOUT | ADDR_NO_RANDOMIZE, BYTES = 16 << 20 };

static unsigned char value(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

int main(int argc, char **argv) {
    if (argc > 0 && (personality(0xffffffff) & LAYOUT) != LAYOUT) {
        personality(LAYOUT);
        execv("/proc/self/exe", argv);
        return 1;
    }
    // No multiple of a huge page, so the mapping lies next to others. The last MiB is never touched.
    unsigned char *memory = malloc(BYTES + (1 << 20));
    for (size_t i = 0; i < BYTES; i++) memory[i] = value(i);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
        size_t bad = 0;
        for (size_t i = 0; i < BYTES; i++) bad += memory[i] != value(i);
        printf("bad %zu\n", bad);
        fflush(stdout);
    }
    return 0;
}
