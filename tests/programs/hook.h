// What hook.c and notify.c tell: one file, mapped by them and read by the tests.

#pragma once
#include <stdint.h>

enum { SITES = 4096, POINTS = 128, THREADS = 64, FRAMES = 4 };

// A place from which something is called.
struct site {
    uint64_t key, count;
    uint32_t number, what;
    uint64_t frames[FRAMES]; // offsets of return addresses, innermost first
    uint64_t unused;
};

struct table {
    uint64_t ready, fired, armed, released, unused[4];
    uint64_t points[POINTS]; // how often each was passed
    struct { char name[16]; uint64_t allocations, bytes; } threads[THREADS]; // while armed is 1
    struct site sites[SITES];
};
