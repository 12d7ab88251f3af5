// A program that locks all memory that it has (mlockall), and then maps more.
//
// Prints "pid N" and "ready" when 24 MiB are filled behind that. Lines it is told: "check", answered by "bad N", the
// bytes among every 64th that are not what they must be; "quit".

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 6144, STEP = 64 };

static char value(size_t page) { return (char)('A' + page % 23); }

int main(void) {
    int prot = PROT_READ | PROT_WRITE;
    char line[64];
    if (mlockall(MCL_CURRENT)) perror("mlockall"), exit(3);
    char *memory = mmap(NULL, (size_t)PAGES * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) perror("mmap"), exit(3);
    for (size_t page = 0; page < PAGES; page++) memset(memory + page * PAGE, value(page), PAGE);
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
        size_t bad = 0;
        for (size_t page = 0; page < PAGES; page++)
            for (size_t i = 0; i < PAGE; i += STEP) bad += memory[page * PAGE + i] != value(page);
        printf("bad %zu\n", bad);
        fflush(stdout);
    }
    return 0;
}
