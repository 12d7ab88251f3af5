// Threads that do everything a program may do to its memory, and know what every page must hold.
//
// Each thread owns anonymous regions, heap blocks and a piece of its stack. A table in shared memory
// (which is never swapped by Clew, and so can be trusted) says which version each half page
// must hold; the bytes follow from (seed, region, page, version, half). Any byte that differs ends
// the program with status 1 and a description of what was found.
//
//     shadow [--seconds N] [--seed N] [--threads N] [--size BYTES|nK|nM|nG] [--hugepage] [--dontunmap]
//
// Prints "pid N", "running", and at the end (or on SIGTERM) "OK ops=... verified_pages=... forks=...".

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { MAX_PAGE = 65536, IO_PAGES = 8, REGIONS = 40, LOG = 4096, CHILDREN = 2 };
enum { HUGE_PAGE = 2 << 20 };

extern char **environ;

enum kind { MAPPING, HEAP, STATIC };
enum guard { NO_GUARD, READ_ONLY, NO_ACCESS, LOCKED };
enum { LAZY_FREED = 1, UNMAPPED = 2 };

enum op {
    WRITE, HALF, VERIFY, STALE, GROW, SHRINK, MOVE, RENEW, DONTNEED, LAZYFREE, GUARD, FORK, SPAWN,
    SYSCALL_IN, SYSCALL_OUT, HEAP_RESIZE, HEAP_RENEW, HOLE, FUTEX, COLLAPSE, REMAIN, OPS
};
static const char *const op_names[OPS] = {
    "write", "half-write", "verify", "verify-stale", "mremap-grow", "mremap-shrink", "mremap-move",
    "munmap-mmap", "dontneed", "madv-free", "mprotect-mlock", "fork", "spawn", "read-into",
    "write-from", "realloc", "free-malloc", "hole", "futex", "collapse", "mremap-dontunmap"};
// How often each is chosen, of the sum of all.
static const unsigned weights[OPS] = {
    [WRITE] = 4000, [HALF] = 1500, [VERIFY] = 4000, [STALE] = 1500, [GROW] = 120, [SHRINK] = 120,
    [MOVE] = 60, [RENEW] = 12, [DONTNEED] = 150, [LAZYFREE] = 150, [GUARD] = 120, [FORK] = 10,
    [SPAWN] = 2, [SYSCALL_IN] = 600, [SYSCALL_OUT] = 600, [HEAP_RESIZE] = 250, [HEAP_RENEW] = 150,
    [HOLE] = 60, [FUTEX] = 200, [COLLAPSE] = 20, [REMAIN] = 10};

// What one page (of a heap block: one page's length) must hold.
struct cell {
    uint32_t version[2]; // of each half; 0 is zeros
    uint32_t touched;    // the worker's operation that last looked at it
    uint32_t flags;
};

struct region {
    enum kind kind;
    uint32_t uid;
    char *base;
    uint32_t pages, max_pages;
    size_t first_cell;
    enum guard guard;
    uint32_t guard_first, guard_count;
    bool splits;  // whether parts of it may be unmapped and protected
    bool patched; // part of it was unmapped or protected once: may be several mappings now
};

struct record {
    uint64_t number;
    uint32_t uid, first, count, version;
    enum op op;
};

// All that one thread knows. Lives in shared memory; a forked child works on a copy.
struct worker {
    uint64_t random;
    size_t bytes; // of this structure with its cells
    uint64_t ops, verified, forks, refused, cut, halves;
    uint64_t done[OPS];
    int id, depth;
    uint32_t next_uid, next_version;
    int file, pipe[2]; // where system calls take from and put to
    struct {
        pid_t pid;
        struct worker *copy;
    } children[CHILDREN];
    int regions;
    struct region region[REGIONS];
    struct record log[LOG];
    uint64_t expect[MAX_PAGE / 8];
    uint64_t found[MAX_PAGE / 8];
    char io[MAX_PAGE * IO_PAGES];
    struct cell cells[];
};

static uint64_t seed = 1;
static size_t page_size;
static bool huge_pages, with_dontunmap;
static atomic_bool stop;

static char zeroed_global[4 << 20];
static char filled_global[256 << 10] = {1};

// Lies in private anonymous memory, so that futex calls meet missing pages.
struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint64_t total;
    uint64_t of[64];
};
static struct meeting *meeting;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > (int)sizeof text - 1) length = sizeof text - 1;
    if (write(2, text, length) < 0) _exit(1);
}

static void fail(const char *what) {
    say("shadow: %s: %s (pid %d)\n", what, strerror(errno), getpid());
    _exit(1);
}

// Which mappings the range lies in, before the program ends for it.
static void say_mappings(const char *base, size_t bytes) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (!smaps) return;
    char line[256];
    int near = 0;
    say("shadow: %p to %p lies in\n", base, base + bytes);
    while (fgets(line, sizeof line, smaps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            near = start <= (unsigned long)base + bytes && (unsigned long)base <= end;
            if (near) say("shadow: %s", line);
        } else if (near && !strncmp(line, "VmFlags:", 8)) {
            say("shadow: %s", line);
        }
    }
    fclose(smaps);
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t draw(struct worker *w) {
    return mix(w->random += 0x9e3779b97f4a7c15);
}

static uint32_t below(struct worker *w, uint32_t limit) {
    return (draw(w) >> 32) * limit >> 32;
}

static const uint64_t header_mark = 0xC1E3ull << 48;

// The bytes of one half page.
static void generate(uint64_t *to, uint32_t uid, uint32_t page, uint32_t version, int half) {
    size_t words = page_size / 16;
    if (version == 0) {
        memset(to, 0, words * 8);
        return;
    }
    uint64_t key = mix(seed ^ mix((uint64_t)uid << 32 | page) ^ ((uint64_t)version << 1 | half));
    switch (key & 7) {
    case 0: // one word repeated: no header, so that it stays so
        for (size_t i = 0; i < words; i++) to[i] = key;
        return;
    case 1:
    case 2: // does not compress
        for (size_t i = 0; i < words; i++) {
            uint64_t x = (key + i) * 0x9e3779b97f4a7c15;
            to[i] = x ^ x >> 29;
        }
        break;
    default: // compresses
        for (size_t i = 0; i < words; i++)
            to[i] = (i & 7) == 7 ? key * i : (key >> 40) + (i & 3) * 0x10001;
    }
    to[0] = header_mark | (uint64_t)(uid & 0xffffff) << 24 | (page & 0xffffff);
    to[1] = (uint64_t)version << 1 | half;
}

static void generate_page(uint64_t *to, struct worker *w, struct region *r, uint32_t page) {
    struct cell *cell = &w->cells[r->first_cell + page];
    for (int half = 0; half < 2; half++)
        generate(to + half * page_size / 16, r->uid, page, cell->version[half], half);
}

static void record(struct worker *w, enum op op, struct region *r, uint32_t first, uint32_t count) {
    w->log[w->ops % LOG] =
        (struct record){w->ops, r->uid, first, count, w->next_version, op};
}

static struct cell *cell_of(struct worker *w, struct region *r, uint32_t page) {
    return &w->cells[r->first_cell + page];
}

static char *address(struct region *r, uint32_t page) {
    return r->base + (size_t)page * page_size;
}

static bool in_guard(struct region *r, uint32_t page) {
    return r->guard != NO_GUARD && page >= r->guard_first && page - r->guard_first < r->guard_count;
}

static bool readable(struct worker *w, struct region *r, uint32_t page) {
    if (cell_of(w, r, page)->flags & UNMAPPED) return false;
    return !(in_guard(r, page) && r->guard == NO_ACCESS);
}

static bool writable(struct worker *w, struct region *r, uint32_t page) {
    return readable(w, r, page) && !(in_guard(r, page) && r->guard == READ_ONLY);
}

// Whether [first, first + count) is mapped throughout and outside the guarded range.
static bool plain(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    for (uint32_t page = first; page < first + count; page++)
        if (in_guard(r, page) || cell_of(w, r, page)->flags & UNMAPPED) return false;
    return true;
}

static bool all_zero(const uint64_t *words) {
    for (size_t i = 0; i < page_size / 8; i++)
        if (words[i]) return false;
    return true;
}

static void describe_half(const uint64_t *words, int half) {
    size_t count = page_size / 16;
    bool same = true;
    for (size_t i = 1; i < count; i++) same &= words[i] == words[0];
    if (same)
        say("  half %d holds: %016lx throughout\n", half, words[0]);
    else if (words[0] >> 48 == header_mark >> 48)
        say("  half %d begins as: region %lu page %lu version %lu half %lu\n", half,
            words[0] >> 24 & 0xffffff, words[0] & 0xffffff, words[1] >> 1, words[1] & 1);
    else
        say("  half %d begins: %016lx %016lx %016lx\n", half, words[0], words[1], words[2]);
}

static void mismatch(struct worker *w, struct region *r, uint32_t page, const char *during) {
    static const char *const kinds[] = {"mapping", "heap", "static"};
    struct cell *cell = cell_of(w, r, page);
    size_t words = page_size / 8, at = words, differing = 0;
    for (size_t i = 0; i < words; i++)
        if (w->found[i] != w->expect[i]) {
            if (at == words) at = i;
            differing++;
        }
    char *where = address(r, page);
    uint64_t entry = 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap >= 0 && pread(pagemap, &entry, 8, (uintptr_t)where / page_size * 8) != 8) entry = 0;
    if (at == words) at = 0;
    say("shadow: MISMATCH (%s) pid=%d thread=%d depth=%d seed=%lu op=%lu\n", during, getpid(), w->id,
        w->depth, seed, w->ops);
    say("  region %u (%s) base %p page %u of %u, address %p, offset %zu\n", r->uid, kinds[r->kind],
        (void *)r->base, page, r->pages, (void *)where, at * 8);
    say("  expected %016lx found %016lx, %zu of %zu words differ\n", w->expect[at], w->found[at],
        differing, words);
    say("  versions %u %u flags %u last touched by op %u, guard %d [%u +%u]\n", cell->version[0],
        cell->version[1], cell->flags, cell->touched, r->guard, r->guard_first, r->guard_count);
    describe_half(w->found, 0);
    describe_half(w->found + words / 2, 1);
    if (r->kind == MAPPING || !in_guard(r, page)) {
        memcpy(w->found, where, page_size);
        say("  read again: %s; pagemap entry %016lx\n",
            memcmp(w->found, w->expect, page_size) ? "still wrong" : "now right", entry);
    }
    int shown = 0;
    for (uint64_t n = w->ops + 1; n-- > 0 && w->ops - n < LOG && shown < 12;) {
        struct record *l = &w->log[n % LOG];
        if (l->number != n || l->uid != r->uid) continue;
        if (page < l->first || page - l->first >= l->count) continue;
        say("  op %lu: %s pages %u..%u next version %u\n", n, op_names[l->op], l->first,
            l->first + l->count - 1, l->version);
        shown++;
    }
    _exit(1);
}

static void verify_page(struct worker *w, struct region *r, uint32_t page) {
    if (!readable(w, r, page)) return;
    struct cell *cell = cell_of(w, r, page);
    const char *from = address(r, page);
    generate_page(w->expect, w, r, page);
    w->verified++;
    cell->touched = w->ops;
    if (memcmp(from, w->expect, page_size) == 0) return;
    // A lazily freed page may become zeros at any moment until it is written, also while we look.
    for (int i = 0; i < 3; i++) {
        memcpy(w->found, from, page_size);
        if (!(cell->flags & LAZY_FREED)) break;
        if (all_zero(w->found)) {
            cell->version[0] = cell->version[1] = 0;
            cell->flags = 0;
            return;
        }
    }
    mismatch(w, r, page, "verify");
}

static void write_page(struct worker *w, struct region *r, uint32_t page) {
    if (!writable(w, r, page)) return;
    struct cell *cell = cell_of(w, r, page);
    cell->version[0] = cell->version[1] = ++w->next_version;
    cell->flags = 0;
    cell->touched = w->ops;
    generate_page((uint64_t *)address(r, page), w, r, page);
}

static void write_half(struct worker *w, struct region *r, uint32_t page) {
    struct cell *cell = cell_of(w, r, page);
    if (cell->flags & LAZY_FREED) {
        write_page(w, r, page); // the other half would be undefined
        return;
    }
    if (!writable(w, r, page)) return;
    int half = below(w, 2);
    cell->version[half] = ++w->next_version;
    cell->touched = w->ops;
    generate((uint64_t *)address(r, page) + half * page_size / 16, r->uid, page, cell->version[half],
             half);
}

static void verify_all(struct worker *w) {
    for (int i = 0; i < w->regions; i++)
        for (uint32_t page = 0; page < w->region[i].pages; page++) verify_page(w, &w->region[i], page);
}

static void clear_cells(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    memset(cell_of(w, r, first), 0, count * sizeof(struct cell));
}

// --- regions ---

static void map_region(struct worker *w, struct region *r, uint32_t pages) {
    size_t bytes = pages * page_size, extra = huge_pages ? HUGE_PAGE : 0;
    char *base = mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) fail("mmap");
    if (extra) {
        char *aligned = (char *)(((uintptr_t)base + extra - 1) & ~(uintptr_t)(extra - 1));
        if (aligned > base && munmap(base, aligned - base)) fail("munmap before");
        if (base + extra > aligned && munmap(aligned + bytes, base + extra - aligned))
            fail("munmap behind");
        base = aligned;
        if (madvise(base, bytes, MADV_HUGEPAGE)) fail("MADV_HUGEPAGE");
    }
    r->base = base;
    r->pages = pages;
    r->uid = w->next_uid++;
    r->guard = NO_GUARD;
    r->patched = false;
    clear_cells(w, r, 0, pages);
}

// How much of a move has been done: nothing could be read at its target before.
static size_t moved_to(const char *to, size_t bytes) {
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) fail("opening maps");
    unsigned long start, end, at = (unsigned long)to;
    char line[256], right[5];
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, right) == 3 && start <= at && at < end && right[0] == 'r')
            at = end;
    fclose(maps);
    size_t moved = at - (unsigned long)to;
    return moved < bytes ? moved : bytes;
}

// mremap of a whole region. While its registration is under way it may lie in two mappings: for some
// microseconds, or until the next daemon comes. Then the kernel refuses, once; to a fixed target it may have moved the
// first of them, whose place may be another's by now: then only the rest is moved.
static char *mremap_whole(struct worker *w, struct region *r, size_t bytes, int flags, char *to) {
    size_t before = r->pages * page_size, moved = 0;
    char *base = mremap(r->base, before, bytes, flags, to);
    if (base != MAP_FAILED || errno != EFAULT || r->patched) return base;
    w->cut++;
    if (to && bytes == before) moved = moved_to(to, bytes);
    if (moved) w->halves++;
    for (int i = 0; i < 10000 && base == MAP_FAILED && errno == EFAULT; i++) {
        usleep(1000);
        base = mremap(r->base + moved, before - moved, bytes - moved, flags, to ? to + moved : to);
    }
    return base == MAP_FAILED ? base : base - moved;
}

static void release_guard(struct region *r) {
    char *from = address(r, r->guard_first);
    size_t bytes = r->guard_count * page_size;
    if (r->guard == LOCKED && munlock(from, bytes)) fail("munlock");
    if ((r->guard == READ_ONLY || r->guard == NO_ACCESS) &&
        mprotect(from, bytes, PROT_READ | PROT_WRITE))
        fail("mprotect back");
    r->guard = NO_GUARD;
}

// Unmaps what is mapped of [first, first + count). A hole may belong to somebody else by now.
static void unmap_pages(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    for (uint32_t page = first; page < first + count;) {
        uint32_t end = page;
        while (end < first + count && !(cell_of(w, r, end)->flags & UNMAPPED)) end++;
        if (end > page && munmap(address(r, page), (end - page) * page_size)) fail("munmap");
        for (; page < end; page++) cell_of(w, r, page)->flags = UNMAPPED;
        page = end + 1;
    }
}

static void remap(struct worker *w, struct region *r, enum op op) {
    if (r->guard != NO_GUARD) release_guard(r);
    if (!plain(w, r, 0, r->pages)) return;
    uint32_t pages = r->pages;
    if (op == GROW || (op == MOVE && below(w, 4) == 0)) pages += 1 + below(w, 128);
    if (op == SHRINK && pages > 16) pages -= 1 + below(w, pages / 4);
    if (pages > r->max_pages) pages = r->max_pages;
    record(w, op, r, pages < r->pages ? pages : 0, r->pages > pages ? r->pages - pages : pages);
    char *to = NULL;
    int flags = MREMAP_MAYMOVE;
    if (op == MOVE && !r->patched) {
        to = mmap(NULL, pages * page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
        if (to == MAP_FAILED) fail("mmap of a target");
        flags |= MREMAP_FIXED;
    }
    char *base = mremap_whole(w, r, pages * page_size, flags, to);
    if (base == MAP_FAILED) {
        // The kernel's right where it is several mappings, and there only.
        if (errno != EFAULT || !r->patched) {
            int error = errno;
            say_mappings(r->base, r->pages * page_size);
            errno = error;
            fail(op_names[op]);
        }
        w->refused++;
        return;
    }
    r->base = base;
    if (pages > r->pages) clear_cells(w, r, r->pages, pages - r->pages);
    r->pages = pages;
}

// Moves the pages away and leaves the old range mapped: it must read as zeros.
static void remap_and_remain(struct worker *w, struct region *r) {
    if (r->guard != NO_GUARD) release_guard(r);
    if (r->patched || !plain(w, r, 0, r->pages)) return;
    record(w, REMAIN, r, 0, r->pages);
    char *old = r->base;
    size_t bytes = r->pages * page_size;
    char *base = mremap_whole(w, r, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (base == MAP_FAILED) fail("mremap DONTUNMAP");
    r->base = base;
    for (int i = 0; i < 4; i++) {
        memcpy(w->found, old + below(w, r->pages) * page_size, page_size);
        memset(w->expect, 0, page_size);
        if (!all_zero(w->found)) mismatch(w, r, 0, "old range of mremap DONTUNMAP");
    }
    if (munmap(old, bytes)) fail("munmap of the old range");
}

static void guard(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    if (r->guard != NO_GUARD) {
        record(w, GUARD, r, r->guard_first, r->guard_count);
        release_guard(r);
        return;
    }
    if (!r->splits || below(w, 4) == 0) first = 0, count = r->pages;
    if (!plain(w, r, first, count)) return;
    record(w, GUARD, r, first, count);
    if (count < r->pages) r->patched = true;
    char *from = address(r, first);
    r->guard_first = first;
    r->guard_count = count;
    switch (below(w, 3)) {
    case 0:
        if (mprotect(from, count * page_size, PROT_READ)) fail("mprotect READ");
        r->guard = READ_ONLY;
        // The kernel must refuse to write there, whether the page is present or not.
        ssize_t got = pread(w->file, from, 64, 0);
        if (got != -1 || errno != EFAULT) {
            say("shadow: pread into a read-only page gave %zd errno %d\n", got, errno);
            _exit(1);
        }
        break;
    case 1:
        if (mprotect(from, count * page_size, PROT_NONE)) fail("mprotect NONE");
        r->guard = NO_ACCESS;
        break;
    default:
        if (mlock(from, count * page_size) == 0)
            r->guard = LOCKED;
        else if (errno != ENOMEM && errno != EPERM && errno != EAGAIN)
            fail("mlock");
    }
}

static void hole(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    if (!r->splits) return;
    if (r->guard != NO_GUARD) release_guard(r);
    if (count > 8) count = 8;
    for (uint32_t page = 0; r->patched && page < r->pages; page++) {
        if (!(cell_of(w, r, page)->flags & UNMAPPED)) continue;
        // Fill the first hole again, if nobody else took the place.
        uint32_t end = page;
        while (end < r->pages && cell_of(w, r, end)->flags & UNMAPPED) end++;
        size_t bytes = (end - page) * page_size;
        char *got = mmap(address(r, page), bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == MAP_FAILED && errno != EEXIST) fail("mmap into a hole");
        if (got != MAP_FAILED) {
            record(w, HOLE, r, page, end - page);
            clear_cells(w, r, page, end - page);
            return;
        }
        break;
    }
    r->patched = true;
    record(w, HOLE, r, first, count);
    unmap_pages(w, r, first, count);
}

static void madvise_pages(struct worker *w, struct region *r, uint32_t first, uint32_t count, enum op op) {
    if (!plain(w, r, first, count)) return;
    record(w, op, r, first, count);
    if (op == COLLAPSE) {
        if (huge_pages) madvise(r->base, r->pages * page_size, MADV_COLLAPSE); // an optimisation only
        return;
    }
    if (madvise(address(r, first), count * page_size, op == DONTNEED ? MADV_DONTNEED : MADV_FREE))
        fail(op_names[op]);
    for (uint32_t page = first; page < first + count; page++) {
        struct cell *cell = cell_of(w, r, page);
        if (op == DONTNEED)
            *cell = (struct cell){.touched = w->ops};
        else
            cell->flags |= LAZY_FREED;
    }
}

// --- heap ---

static void fill_heap(struct worker *w, struct region *r, uint32_t from) {
    for (uint32_t page = from; page < r->pages; page++) write_page(w, r, page);
}

static void heap_renew(struct worker *w, struct region *r) {
    free(r->base);
    r->uid = w->next_uid++;
    r->pages = 1 + below(w, r->max_pages);
    record(w, HEAP_RENEW, r, 0, r->pages);
    bool zeroed = below(w, 3) == 0;
    r->base = zeroed ? calloc(r->pages, page_size) : malloc(r->pages * page_size);
    if (!r->base) fail("malloc");
    clear_cells(w, r, 0, r->pages);
    if (!zeroed) fill_heap(w, r, 0);
}

static void heap_resize(struct worker *w, struct region *r) {
    uint32_t old = r->pages, pages = 1 + below(w, r->max_pages);
    record(w, HEAP_RESIZE, r, 0, pages);
    char *base = realloc(r->base, pages * page_size);
    if (!base) fail("realloc");
    r->base = base;
    r->pages = pages;
    if (pages > old) {
        clear_cells(w, r, old, pages - old);
        fill_heap(w, r, old);
    }
}

// --- system calls that copy from and to the program's memory ---

static void exactly(ssize_t got, size_t wanted, const char *what) {
    if (got == (ssize_t)wanted) return;
    if (got >= 0) errno = 0;
    say("shadow: %s moved %zd of %zu bytes\n", what, got, wanted);
    fail(what);
}

static void syscall_in(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    if (count > IO_PAGES) count = IO_PAGES;
    for (uint32_t page = first; page < first + count; page++)
        if (!writable(w, r, page)) return;
    record(w, SYSCALL_IN, r, first, count);
    size_t bytes = count * page_size;
    for (uint32_t i = 0; i < count; i++) {
        struct cell *cell = cell_of(w, r, first + i);
        cell->version[0] = cell->version[1] = ++w->next_version;
        cell->flags = 0;
        cell->touched = w->ops;
        generate_page((uint64_t *)(w->io + i * page_size), w, r, first + i);
    }
    char *to = address(r, first);
    if (below(w, 2)) {
        exactly(pwrite(w->file, w->io, bytes, 0), bytes, "pwrite from shared memory");
        size_t cut = below(w, bytes);
        struct iovec parts[2] = {{to, cut}, {to + cut, bytes - cut}};
        exactly(preadv(w->file, parts, 2, 0), bytes, "preadv into pages");
    } else {
        exactly(write(w->pipe[1], w->io, bytes), bytes, "write to a pipe");
        exactly(read(w->pipe[0], to, bytes), bytes, "read from a pipe into pages");
    }
}

static void syscall_out(struct worker *w, struct region *r, uint32_t first, uint32_t count) {
    if (count > IO_PAGES) count = IO_PAGES;
    for (uint32_t page = first; page < first + count; page++)
        if (!readable(w, r, page) || cell_of(w, r, page)->flags & LAZY_FREED) return;
    record(w, SYSCALL_OUT, r, first, count);
    size_t bytes = count * page_size;
    if (below(w, 2)) {
        exactly(pwrite(w->file, address(r, first), bytes, 0), bytes, "pwrite from pages");
        exactly(pread(w->file, w->io, bytes, 0), bytes, "pread into shared memory");
    } else {
        exactly(write(w->pipe[1], address(r, first), bytes), bytes, "write from pages to a pipe");
        exactly(read(w->pipe[0], w->io, bytes), bytes, "read from a pipe");
    }
    for (uint32_t i = 0; i < count; i++) {
        generate_page(w->expect, w, r, first + i);
        memcpy(w->found, w->io + i * page_size, page_size);
        w->verified++;
        if (memcmp(w->found, w->expect, page_size)) mismatch(w, r, first + i, "system call");
    }
}

static void visit_meeting(struct worker *w) {
    if (pthread_mutex_lock(&meeting->mutex)) fail("mutex");
    meeting->total++;
    meeting->of[w->id]++;
    pthread_cond_signal(&meeting->condition);
    pthread_mutex_unlock(&meeting->mutex);
}

// --- processes ---

static void await(struct worker *w, int slot, bool wait) {
    int status = 0;
    pid_t pid = w->children[slot].pid, got;
    do got = waitpid(pid, &status, wait ? 0 : WNOHANG);
    while (got == -1 && errno == EINTR);
    if (got == 0) return;
    if (got != pid) fail("waitpid");
    if (status != 0) {
        say("shadow: child %d of thread %d ended with status %#x\n", pid, w->id, status);
        _exit(1);
    }
    struct worker *copy = w->children[slot].copy;
    w->verified += copy->verified;
    w->ops += copy->ops;
    w->forks += copy->forks;
    munmap(copy, copy->bytes);
    w->children[slot].pid = 0;
}

static void await_all(struct worker *w) {
    for (int i = 0; i < CHILDREN; i++)
        if (w->children[i].pid) await(w, i, true);
}

static void exec_self(struct worker *w) {
    char number[32];
    snprintf(number, sizeof number, "%lu", draw(w));
    char *args[] = {"shadow", "--self-check", number, NULL};
    execv("/proc/self/exe", args);
    fail("execv");
}

static void operate(struct worker *w, bool processes);

static void verify_some(struct worker *w, int count);

static void child(struct worker *w);

// Forks a child that works on a copy of what `w` knows at this moment.
static void fork_into(struct worker *w, int slot) {
    struct worker *copy =
        mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) fail("mmap of a copy");
    memcpy(copy, w, w->bytes);
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        child(copy);
        _exit(0);
    }
    w->forks++;
    w->children[slot].pid = pid;
    w->children[slot].copy = copy;
}

static void child(struct worker *w) {
    w->ops = w->verified = w->forks = 0;
    w->depth++;
    w->random ^= (uint64_t)getpid() << 20;
    w->next_version += 1 << 20; // so that its versions tell whose they are
    memset(w->children, 0, sizeof w->children);
    // The file's offset is not used; the pipe would be the parent's.
    close(w->pipe[0]);
    close(w->pipe[1]);
    close(w->file);
    if (pipe2(w->pipe, O_CLOEXEC)) fail("pipe");
    w->file = memfd_create("shadow-child", MFD_CLOEXEC);
    if (w->file < 0 || pwrite(w->file, w->io, 4096, 0) != 4096) fail("memfd_create");
    verify_some(w, 64);
    if (below(w, 8) == 0) verify_all(w);
    struct timespec nap = {0, below(w, 20) * 1000000};
    if (below(w, 2)) nanosleep(&nap, NULL);
    switch (below(w, 4)) {
    case 0:
        for (int i = 0; i < 400; i++) operate(w, false);
        break;
    case 1:
        if (w->depth < 3) {
            for (int i = 0; i < 20; i++) operate(w, false);
            fork_into(w, 0);
            for (int i = 0; i < 50; i++) operate(w, false);
            await_all(w);
        }
        break;
    default:
        for (int i = 0; i < 48; i++) {
            struct region *r = &w->region[below(w, w->regions)];
            uint32_t page = below(w, r->pages);
            w->ops++;
            record(w, WRITE, r, page, 1);
            write_page(w, r, page);
        }
    }
    verify_some(w, 128);
    if (below(w, 8) == 0) verify_all(w);
    if (below(w, 4) == 0) exec_self(w);
}

static void do_fork(struct worker *w) {
    int slot = -1;
    for (int i = 0; i < CHILDREN; i++) {
        if (w->children[i].pid) await(w, i, false);
        if (!w->children[i].pid) slot = i;
    }
    if (slot < 0) return;
    fork_into(w, slot);
}

static void do_spawn(struct worker *w) {
    char *args[] = {"true", NULL};
    pid_t pid;
    if (below(w, 2)) {
        errno = posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
        if (errno) fail("posix_spawn");
    } else {
        pid = vfork();
        if (pid < 0) fail("vfork");
        if (pid == 0) {
            execv("/bin/true", args);
            _exit(127);
        }
    }
    int status;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) fail("waitpid of true");
    if (status) {
        say("shadow: /bin/true ended with status %#x\n", status);
        _exit(1);
    }
}

// --- the work ---

// The page that was left alone for the longest time of a few drawn ones.
static uint32_t stale_page(struct worker *w, struct region *r) {
    uint32_t best = below(w, r->pages);
    for (int i = 0; i < 12; i++) {
        uint32_t page = below(w, r->pages);
        if (cell_of(w, r, page)->touched < cell_of(w, r, best)->touched) best = page;
    }
    return best;
}

static void verify_some(struct worker *w, int count) {
    for (int i = 0; i < count; i++) {
        struct region *r = &w->region[below(w, w->regions)];
        verify_page(w, r, i & 1 ? stale_page(w, r) : below(w, r->pages));
    }
}

static struct region *pick(struct worker *w, enum kind kind) {
    for (int i = 0; i < 64; i++) {
        struct region *r = &w->region[below(w, w->regions)];
        if (r->kind == kind) return r;
    }
    return NULL;
}

static void operate(struct worker *w, bool processes) {
    unsigned total = 0;
    for (int i = 0; i < OPS; i++) total += weights[i];
    unsigned draw_op = below(w, total);
    enum op op = 0;
    while (draw_op >= weights[op]) draw_op -= weights[op++];
    if (op == REMAIN && !with_dontunmap) op = VERIFY;
#ifdef __SANITIZE_THREAD__
    // The sanitizer does not see mremap: it takes the next owner of an address for a racing one.
    if (op == GROW || op == SHRINK || op == MOVE || op == REMAIN) op = VERIFY;
#endif
    if (!processes && (op == FORK || op == SPAWN || op == FUTEX)) op = VERIFY;

    w->ops++;
    struct region *r;
    if (op == HEAP_RESIZE || op == HEAP_RENEW)
        r = pick(w, HEAP);
    else if ((op >= GROW && op <= GUARD) || op == HOLE || op == COLLAPSE || op == REMAIN)
        r = pick(w, MAPPING);
    else
        r = &w->region[below(w, w->regions)];
    if (!r) return;
    w->done[op]++;
    uint32_t first = below(w, r->pages);
    uint32_t count = 1 + below(w, below(w, 8) ? 8 : 64);
    if (count > r->pages - first) count = r->pages - first;
    switch (op) {
    case WRITE:
        record(w, op, r, first, count);
        for (uint32_t i = 0; i < count; i++) {
            // Half of the pages are looked at before they are lost, half are written unread.
            if (below(w, 2)) verify_page(w, r, first + i);
            write_page(w, r, first + i);
        }
        break;
    case HALF:
        record(w, op, r, first, 1);
        write_half(w, r, first);
        break;
    case VERIFY:
        for (uint32_t i = 0; i < count; i++) verify_page(w, r, first + i);
        break;
    case STALE:
        verify_page(w, r, stale_page(w, r));
        break;
    case GROW:
    case SHRINK:
    case MOVE:
        remap(w, r, op);
        break;
    case RENEW:
        if (r->guard != NO_GUARD) release_guard(r);
        unmap_pages(w, r, 0, r->pages);
        map_region(w, r, r->max_pages / 4 + below(w, r->max_pages / 2));
        record(w, op, r, 0, r->pages);
        break;
    case DONTNEED:
    case LAZYFREE:
    case COLLAPSE:
        madvise_pages(w, r, first, count, op);
        break;
    case GUARD:
        guard(w, r, first, count);
        break;
    case FORK:
        do_fork(w);
        break;
    case SPAWN:
        do_spawn(w);
        break;
    case SYSCALL_IN:
        syscall_in(w, r, first, count);
        break;
    case SYSCALL_OUT:
        syscall_out(w, r, first, count);
        break;
    case HEAP_RESIZE:
        heap_resize(w, r);
        break;
    case HEAP_RENEW:
        heap_renew(w, r);
        break;
    case HOLE:
        hole(w, r, first, count);
        break;
    case FUTEX:
        visit_meeting(w);
        break;
    case REMAIN:
        remap_and_remain(w, r);
        break;
    case OPS:
        break;
    }
}

static size_t share; // bytes of each worker

static struct region *add_region(struct worker *w, enum kind kind, size_t *cells, uint32_t max_pages) {
    struct region *r = &w->region[w->regions++];
    *r = (struct region){.kind = kind, .first_cell = *cells, .max_pages = max_pages};
    *cells += max_pages;
    return r;
}

static struct worker *new_worker(int id) {
    // Regions may grow to twice their share.
    size_t cells = 4 * share / page_size + 8192;
    size_t bytes = sizeof(struct worker) + cells * sizeof(struct cell);
    struct worker *w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED) fail("mmap of a worker");
    w->bytes = bytes;
    w->id = id;
    w->random = mix(seed * 1000 + id);
    w->next_uid = (id << 18) + 1;
    w->file = memfd_create("shadow", MFD_CLOEXEC);
    if (w->file < 0 || pipe2(w->pipe, O_CLOEXEC)) fail("memfd and pipe");
    if (pwrite(w->file, w->io, 4096, 0) != 4096) fail("pwrite");
    return w;
}

static void add_static(struct worker *w, size_t *cells, char *base, size_t bytes, bool zeroed) {
    struct region *r = add_region(w, STATIC, cells, bytes / page_size);
    r->uid = w->next_uid++;
    r->base = base;
    r->pages = bytes / page_size;
    if (!zeroed) fill_heap(w, r, 0);
}

static void *work(void *argument) {
    struct worker *w = argument;
    char stack[64 << 10] __attribute__((aligned(16)));
    size_t cells = 0, pages = share / page_size;
    add_static(w, &cells, stack, sizeof stack, false);
    // Three quarters in mappings, one quarter in heap blocks.
    size_t part = pages * 3 / 4 / 5;
    if (huge_pages && part > HUGE_PAGE / page_size) part &= ~(HUGE_PAGE / page_size - 1);
    for (int i = 0; i < 5; i++) {
        struct region *r = add_region(w, MAPPING, &cells, part * 2);
        r->splits = i & 1;
        map_region(w, r, part);
    }
    for (int i = 0; i < 18; i++) {
        struct region *r = add_region(w, HEAP, &cells, i < 2 ? pages / 8 : pages / 256 + 1);
        heap_renew(w, r);
    }
    for (int i = 0; i < w->regions; i++)
        for (uint32_t page = 0; page < w->region[i].pages; page++)
            if (below(w, 4)) write_page(w, &w->region[i], page);
    verify_all(w);
    while (!stop) operate(w, true);
    await_all(w);
    verify_all(w);
    return NULL;
}

static int self_check(void) {
    share = 2 << 20;
    struct worker *w = new_worker(0);
    size_t cells = 0;
    map_region(w, add_region(w, MAPPING, &cells, 1024), 512);
    heap_renew(w, add_region(w, HEAP, &cells, 64));
    for (int i = 0; i < 500; i++) operate(w, false);
    verify_all(w);
    return 0;
}

static size_t parse_size(const char *text) {
    char *end;
    size_t value = strtoull(text, &end, 10);
    switch (*end) {
    case 'G': value <<= 10; // fall through
    case 'M': value <<= 10; // fall through
    case 'K': value <<= 10;
    }
    return value;
}

static volatile sig_atomic_t asked; // to end before its time

static void on_term(int signal) { asked = signal; }

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"seconds", 1, 0, 's'}, {"seed", 1, 0, 'r'},     {"threads", 1, 0, 't'}, {"size", 1, 0, 'b'},
        {"hugepage", 0, 0, 'h'}, {"dontunmap", 0, 0, 'd'}, {"self-check", 1, 0, 'c'}, {0, 0, 0, 0}};
    int seconds = 10, threads = 8, choice;
    size_t size = 128 << 20;
    bool checking = false;
    while ((choice = getopt_long(argc, argv, "", options, NULL)) != -1) switch (choice) {
        case 's': seconds = atoi(optarg); break;
        case 'r': seed = strtoull(optarg, NULL, 10); break;
        case 't': threads = atoi(optarg); break;
        case 'b': size = parse_size(optarg); break;
        case 'h': huge_pages = true; break;
        case 'd': with_dontunmap = true; break;
        case 'c': checking = true; seed = strtoull(optarg, NULL, 10); break;
        default: return 2;
        }
    page_size = sysconf(_SC_PAGESIZE);
    if (page_size > MAX_PAGE || threads < 1 || threads > 62 || size < ((size_t)threads << 20)) {
        fprintf(stderr, "shadow: 1 to 62 threads, at least 1 MiB each\n");
        return 2;
    }
    // Blocks from 256 KiB on are mappings of their own, whatever was freed before.
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    if (checking) return self_check();
    printf("pid %d\n", getpid());
    fflush(stdout);

    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED) fail("mmap of the meeting");
    pthread_mutex_init(&meeting->mutex, NULL);
    pthread_cond_init(&meeting->condition, NULL);

    share = size / threads;
    struct worker *workers[64];
    pthread_t handles[64];
    for (int i = 0; i < threads; i++) {
        workers[i] = new_worker(i + 1);
        if (pthread_create(&handles[i], NULL, work, workers[i])) fail("pthread_create");
    }
    char stack[256 << 10] __attribute__((aligned(16)));
    struct worker *own = new_worker(0);
    size_t cells = 0;
    add_static(own, &cells, zeroed_global, sizeof zeroed_global, true);
    add_static(own, &cells, filled_global, sizeof filled_global, false);
    add_static(own, &cells, stack, sizeof stack, false);
    struct sigaction ask = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    if (sigaction(SIGTERM, &ask, NULL)) fail("sigaction");
    puts("running");
    fflush(stdout);

    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    do {
        for (int i = 0; i < 20; i++) operate(own, true);
        // Waits for somebody to come, at most a moment.
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_mutex_lock(&meeting->mutex);
        pthread_cond_timedwait(&meeting->condition, &meeting->mutex, &until);
        pthread_mutex_unlock(&meeting->mutex);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!asked && (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec)));
    stop = true;
    await_all(own);
    verify_all(own);
    workers[threads] = own;
    uint64_t ops = 0, verified = 0, forks = 0, refused = 0, cut = 0, halves = 0, met = 0, done[OPS] = {0};
    for (int i = 0; i <= threads; i++) {
        if (i < threads && pthread_join(handles[i], NULL)) fail("pthread_join");
        ops += workers[i]->ops;
        verified += workers[i]->verified;
        forks += workers[i]->forks;
        refused += workers[i]->refused;
        cut += workers[i]->cut;
        halves += workers[i]->halves;
        for (int op = 0; op < OPS; op++) done[op] += workers[i]->done[op];
        if (meeting->of[workers[i]->id] != workers[i]->done[FUTEX]) {
            say("shadow: thread %d met %lu times, the page says %lu\n", workers[i]->id,
                workers[i]->done[FUTEX], meeting->of[workers[i]->id]);
            return 1;
        }
        met += workers[i]->done[FUTEX];
    }
    if (met != meeting->total) {
        say("shadow: %lu meetings, the page says %lu\n", met, meeting->total);
        return 1;
    }
    for (int op = 0; op < OPS; op++) printf("%s=%lu ", op_names[op], done[op]);
    printf("mremap-refused=%lu mremap-cut=%lu mremap-halves=%lu\n", refused, cut, halves);
    printf("OK ops=%lu verified_pages=%lu forks=%lu\n", ops, verified, forks);
    return 0;
}
