// Gives memory the advice that children find nothing there (MADV_WIPEONFORK), again and again, from a stack that lies in its
// memory as a coroutine's does, at each place of a page in turn, and is no larger than such a one; what lies below it stays.
#define _GNU_SOURCE
#include <alloca.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { BYTES = 16 << 20, STACK = 8 << 10, BELOW = 64 << 10, ADVISED = 64 << 10, STEP = 16, TIMES = 4 };

static ucontext_t outside, inside;
static char *advised;
static int failed;

static void __attribute__((noinline)) advise(int deeper) {
    volatile char *room = alloca(deeper + 1);
    room[0] = 1;
    failed += madvise(advised, ADVISED, MADV_WIPEONFORK) != 0;
    madvise(advised, ADVISED, MADV_KEEPONFORK);
    memset(advised, 7, ADVISED);
}

static void on_own_stack(void) {
    for (int time = 0; time < TIMES; time++)
        for (int deeper = 0; deeper < 4096; deeper += STEP) {
            advise(deeper);
            usleep(3000);
        }
}

int main(void) {
    char line[16];
    char *large = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    advised = mmap(NULL, ADVISED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 2, BYTES);
    memset(advised, 7, ADVISED);
    // Once, so that it is found (by the loader) on a large stack.
    madvise(advised, ADVISED, MADV_WIPEONFORK);
    madvise(advised, ADVISED, MADV_KEEPONFORK);
    memset(advised, 7, ADVISED);
    usleep(1);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        getcontext(&inside);
        inside.uc_stack.ss_sp = large + BYTES / 2;
        inside.uc_stack.ss_size = STACK;
        inside.uc_link = &outside;
        makecontext(&inside, on_own_stack, 0);
        swapcontext(&outside, &inside);
        int changed = 0;
        for (int i = 1; i <= BELOW; i++) changed += large[BYTES / 2 - i] != 2;
        printf("failed %d changed %d\n", failed, changed);
        fflush(stdout);
    }
    return 0;
}
