// A program that keeps memory out of its children: nofork late|early [later].
//
// Prints "pid N" and "ready" when 16 MiB are filled, which it has the kernel keep out of its children
// (MADV_DONTFORK): before they are filled, or when it is told to fork. Lines it is told: "fork" has a child
// map as much at the same place, half of it filled before it says "child PID", so that there is much to
// take in (with "later", it fills other memory, and does that when it is told the first time); "child" has that read the other half, which nobody has written, and its own; "check" reads the
// program's; "quit".

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, HALF = PAGES / 2, STEP = 64 };

static char *memory, *other;

static char value(size_t page) { return (char)('A' + page % 23); }

static void keep_it(void) {
    if (madvise(memory, (size_t)PAGES * PAGE, MADV_DONTFORK)) perror("madvise"), exit(3);
}

static void fill(size_t from, size_t to) {
    for (size_t page = from; page < to; page++) memset(memory + page * PAGE, value(page), PAGE);
}

// Bytes among every 64th that are not what they must be: zero behind `filled`.
static size_t bad(size_t filled) {
    size_t count = 0;
    for (size_t page = 0; page < PAGES; page++)
        for (size_t i = 0; i < PAGE; i += STEP)
            count += memory[page * PAGE + i] != (page < filled ? value(page) : 0);
    return count;
}

static void map_again(void) {
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(memory, (size_t)PAGES * PAGE, prot, flags, -1, 0) != memory) perror("child's"), _exit(3);
    fill(0, HALF);
}

static void child(int from, int to, int later) {
    char line[8];
    int is_there = !later;
    // Mapped by the parent: what is mapped here might get the place.
    if (later) memset(other, 'o', (size_t)PAGES * PAGE);
    else map_again();
    dprintf(to, "child %d\n", (int)getpid());
    while (read(from, line, 1) == 1) {
        if (!is_there) map_again();
        is_there = 1;
        size_t wrong = bad(HALF);
        for (size_t i = 0; later && i < (size_t)PAGES * PAGE; i += STEP) wrong += other[i] != 'o';
        dprintf(to, "bad %zu\n", wrong);
    }
    _exit(0);
}

int main(int count, char **words) {
    int prot = PROT_READ | PROT_WRITE, asks[2], answers[2];
    int early = count > 1 && !strcmp(words[1], "early"), later = count > 2;
    char line[64];
    memory = mmap(NULL, (size_t)PAGES * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other = mmap(NULL, (size_t)PAGES * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || other == MAP_FAILED || pipe(asks) || pipe(answers)) perror("nofork"), exit(3);
    if (early) keep_it();
    fill(0, PAGES);
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
        if (!strcmp(line, "check\n")) {
            printf("bad %zu\n", bad(PAGES));
        } else {
            if (!strcmp(line, "fork\n")) {
                if (!early) keep_it();
                if (!fork()) close(asks[1]), child(asks[0], answers[1], later);
            } else if (write(asks[1], "?", 1) != 1) {
                perror("child"), exit(3);
            }
            ssize_t n = read(answers[0], line, sizeof line);
            printf("%.*s", n < 0 ? 0 : (int)n, line);
        }
        fflush(stdout);
    }
    close(asks[1]);
    while (wait(NULL) > 0) {}
    return 0;
}
