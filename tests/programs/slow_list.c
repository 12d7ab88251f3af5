// A program whose list of robust mutexes leads to a page that comes late: slow_list DIRECTORY GO
//
// The page is of a file that it serves itself (slow_files.h), and never touched by it. Fills 16 MiB, prints "pid N" and
// "ready"; then "stuck" whenever that page is read, which takes until there is a file GO. The line "sum" has it print the sum of
// its memory; it ends with its input.

#include "slow_files.h"
#include <sys/syscall.h>

enum { BYTES = 16 << 20 };

struct list {
    void *next;
    long offset;
    void *pending;
};

static const char *go;

static void late(void) {
    dprintf(1, "stuck\n");
    while (access(go, F_OK)) usleep(10000);
}

int main(int count, char **words) {
    char line[64];
    if (count != 3) return 2;
    go = words[2];
    void *late_page = map_slow(words[1]);
    uint32_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (uint32_t i = 0, x = 1; i < BYTES / 4; i++) memory[i] = x = x * 1103515245u + 12345u;
    static struct list list;
    list.next = late_page;
    if (syscall(SYS_set_robust_list, &list, sizeof list)) return 3;
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < BYTES / 4; i++) sum = sum * 31 + memory[i];
        printf("sum %016llx\n", (unsigned long long)sum);
        fflush(stdout);
    }
    list.next = &list;
    return 0;
}
