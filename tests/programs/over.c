// Threads that move blocks of their own over other blocks of their own (mremap with MREMAP_FIXED), and know what each
// page must hold. No thread touches another's. With an argument it is one thread and one block, that moves over memory
// which was mapped and touched a moment ago.
//
// Prints "pid N", "running", and on SIGTERM "moves N bad N"; ends with status 1 if anything was bad.

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 2, BLOCKS = 4, PAGES = 256, PAGE = 4096, WORDS = PAGE / 8 };

static const size_t BYTES = (size_t)PAGES * PAGE;
static atomic_long moves, bad;
static atomic_bool is_over;

struct block {
    uint64_t *at;
    uint64_t what;
};

static uint64_t word(uint64_t what, int page, int i) {
    return (what << 20 | (unsigned)page) * 0x9e3779b97f4a7c15 + (unsigned)(i / 4);
}

static struct block fresh(uint64_t what) {
    struct block block = {.what = what};
    block.at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block.at == MAP_FAILED) exit(2);
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < WORDS; i++) block.at[page * WORDS + i] = word(what, page, i);
    return block;
}

static void look(struct block block) {
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < WORDS; i++)
            if (block.at[page * WORDS + i] != word(block.what, page, i)) {
                bad++;
                break;
            }
}

static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    uint64_t what = (uint64_t)(seed + 1) << 32;
    struct block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = fresh(what++);
    while (!is_over) {
        // Now and then long enough for what is here to leave.
        if (rand_r(&seed) % 2) usleep(rand_r(&seed) % 40000);
        int from = rand_r(&seed) % BLOCKS, to = (from + 1) % BLOCKS;
        uint64_t *at = blocks[to].at;
        // Two mappings while one of them is just being registered.
        if (mremap(blocks[from].at, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at) continue;
        moves++;
        blocks[to] = (struct block){.at = at, .what = blocks[from].what};
        blocks[from] = fresh(what++);
        if (rand_r(&seed) % 2) look(blocks[to]);
        look(blocks[from]);
    }
    for (int i = 0; i < BLOCKS; i++) look(blocks[i]);
    return NULL;
}

static void *move_on(void *nothing) {
    struct block block = fresh(1 << 30), stay[8];
    // A program of less memory is left alone.
    for (int i = 0; i < 8; i++) stay[i] = fresh(i);
    for (unsigned seed = 1; !is_over;) {
        uint64_t *to = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (to == MAP_FAILED) exit(2);
        for (int page = 0; page < PAGES; page++) to[page * WORDS] = 1;
        if (mremap(block.at, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
            munmap(to, BYTES);
            continue;
        }
        moves++;
        block.at = to;
        if (rand_r(&seed) % 4 == 0) look(block);
    }
    look(block);
    for (int i = 0; i < 8; i++) look(stay[i]);
    return nothing;
}

static void end(int signal) {
    (void)signal;
    is_over = true;
}

int main(int argc, char **argv) {
    (void)argv;
    int count = argc > 1 ? 1 : THREADS;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, end);
    printf("pid %d\n", getpid());
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < (unsigned)count; i++)
        if (pthread_create(&threads[i], NULL, argc > 1 ? move_on : work, (void *)i)) return 2;
    puts("running");
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("moves %ld bad %ld\n", moves, bad);
    return bad != 0;
}
