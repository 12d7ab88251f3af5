// Does to its memory what it is told, and knows what each page must hold then.
//
// Prints "pid N" and "ready" when 16 MiB are filled. Lines it is told, FIRST and COUNT in pages:
//
//     guard FIRST COUNT DONE    MADV_GUARD_INSTALL, of which DONE pages come to pass    "guard ERRNO"
//     unguard FIRST COUNT       MADV_GUARD_REMOVE                                       "unguard ERRNO"
//     wipe FIRST COUNT          MADV_WIPEONFORK                                         "wipe ERRNO"
//     vwipe FIRST COUNT         the same, by a child of vfork                           "vwipe ERRNO"
//     keep FIRST COUNT          MADV_KEEPONFORK                                         "keep ERRNO"
//     lock FIRST COUNT          mlock                                                   "lock ERRNO"
//     unmap FIRST COUNT         munmap                                                  "unmap ERRNO"
//     seal FIRST COUNT          mseal: nothing unmaps it any more                       "seal ERRNO"
//     cover FIRST COUNT         mmap over it, where RLIMIT_DATA allows no memory        "cover ERRNO"
//     resize COUNT              mremap, in place                                        "resize ERRNO"
//     enlarge COUNT BY          mremap by so many pages more, elsewhere; if BY is not 0
//                               a child of vfork does it                                "enlarge ERRNO"
//     vforked, threaded         a child of vfork, or a thread that ends, installs a filter of system
//                               calls that allows all                                   "vforked ERRNO"
//     elsewhere                 its root is one without the daemon's socket from now on;
//                               a page of its own gets MADV_WIPEONFORK                        "elsewhere ERRNO"
//     check                     read everything                                         "bad N"
//     fork FIRST COUNT          a child reads everything, gives MADV_WIPEONFORK if
//                               COUNT is not 0, and has a child of its own read it      "bad N"
//     quit
//
// ERRNO is 0 where there was no error. "bad" counts pages that do not hold what they must.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { PAGE = 4096, PAGES = 4096 };

enum holds { VALUES, ZEROS, NOTHING };

static char *memory;
static unsigned char holds[PAGES], is_wiped[PAGES];
static size_t mapped = PAGES;

// Half of each page is the same in all, so that it compresses.
static uint32_t value(size_t page, size_t i) {
    uint32_t x = (uint32_t)(page * 2654435761u + i * 40503u) | 1;
    return i % 2 ? x ^ x >> 15 : 7;
}

static int bad_pages(int in_child) {
    int bad = 0;
    for (size_t page = 0; page < PAGES; page++) {
        if (holds[page] == NOTHING) continue;
        const uint32_t *words = (uint32_t *)(memory + page * PAGE);
        int is_zero = holds[page] == ZEROS || (in_child && is_wiped[page]);
        size_t wrong = 0;
        for (size_t i = 0; i < PAGE / 4; i++) wrong += words[i] != (is_zero ? 0 : value(page, i));
        bad += wrong > 0;
    }
    return bad;
}

// What it and its own child find. It gives its advice before.
static int bad_in_children(int generations, size_t first, size_t count) {
    int ends[2], bad = -1;
    if (pipe(ends)) return -1;
    pid_t child = fork();
    if (child == 0) {
        bad = bad_pages(1);
        if (count && madvise(memory + first * PAGE, count * PAGE, MADV_WIPEONFORK)) bad = -1 - PAGES;
        memset(is_wiped + first, 1, count);
        if (generations > 1) bad += bad_in_children(generations - 1, 0, 0);
        _exit(write(ends[1], &bad, sizeof bad) != sizeof bad);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &bad, sizeof bad) != sizeof bad) bad = -1;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return bad;
}

// 0 if fresh memory took the place of what was there.
static int cover(char *at, size_t bytes) {
    struct rlimit before, none;
    if (getrlimit(RLIMIT_DATA, &before)) return -1;
    none = before;
    none.rlim_cur = PAGE; // 0 is as good as none to the kernel
    if (setrlimit(RLIMIT_DATA, &none)) return -1;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    int error = errno;
    setrlimit(RLIMIT_DATA, &before);
    errno = error;
    return got == MAP_FAILED ? -1 : 0;
}

// What was cut off is gone; what was added holds zeros.
static int resize(size_t pages) {
    if (mremap(memory, mapped * PAGE, pages * PAGE, 0) == MAP_FAILED) return -1;
    for (size_t page = pages; page < mapped; page++) holds[page] = NOTHING;
    for (size_t page = mapped; page < pages; page++) holds[page] = ZEROS;
    mapped = pages;
    return 0;
}

static void *volatile moved;

static void *move(size_t pages, int by_child) {
    if (!by_child) return mremap(memory, mapped * PAGE, (mapped + pages) * PAGE, MREMAP_MAYMOVE);
    moved = MAP_FAILED;
    pid_t child = vfork();
    if (child == 0) {
        moved = (void *)syscall(SYS_mremap, memory, mapped * PAGE, (mapped + pages) * PAGE, MREMAP_MAYMOVE);
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    return moved;
}

// What was added holds zeros; it is given back at once.
static int enlarge(size_t pages, int by_child) {
    char *behind = memory + mapped * PAGE;
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *way = mmap(behind, PAGE, PROT_READ, flags, -1, 0); // in its way, if nothing else is
    char *now = move(pages, by_child);
    int error = errno;
    if (way != MAP_FAILED) munmap(way, PAGE);
    errno = error;
    if (now == MAP_FAILED) return -1;
    if (now == memory) return errno = EEXIST, -1;
    memory = now;
    for (size_t i = 0; i < pages * PAGE; i++)
        if (memory[mapped * PAGE + i]) return errno = EBADMSG, -1;
    return munmap(memory + mapped * PAGE, pages * PAGE);
}

static int install_filter(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int filter_in_child(void) {
    int status;
    pid_t pid = vfork();
    if (pid == 0) _exit(install_filter() ? 1 : 0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return status ? -1 : 0;
}

static void *filters(void *failed) {
    *(int *)failed = install_filter();
    return NULL;
}

static int filter_in_thread(void) {
    pthread_t thread;
    int failed = -1;
    if (pthread_create(&thread, NULL, filters, &failed) || pthread_join(thread, NULL)) return -1;
    return failed;
}

// The child has this memory, and a number of its own.
static int wipe_in_child(char *at, size_t bytes) {
    int status;
    pid_t child = vfork();
    if (child == 0) _exit(madvise(at, bytes, MADV_WIPEONFORK) ? errno : 0);
    if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

// As a server that shuts itself in and then asks its library for random numbers.
static int wipe_elsewhere(void) {
    if (chroot("/proc/self/task") || chdir("/")) return -1;
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? -1 : madvise(page, PAGE, MADV_WIPEONFORK);
}

int main(void) {
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (size_t page = 0; page < PAGES; page++)
        for (size_t i = 0; i < PAGE / 4; i++) ((uint32_t *)(memory + page * PAGE))[i] = value(page, i);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    char line[64], verb[16];
    while (fgets(line, sizeof line, stdin)) {
        size_t first = 0, count = 0, done = 0;
        int words = sscanf(line, "%15s %zu %zu %zu", verb, &first, &count, &done);
        if (words < 1 || first + count > PAGES) return 2;
        char *at = memory + first * PAGE;
        size_t bytes = count * PAGE;
        int failed = 0;
        if (strcmp(verb, "guard") == 0) {
            failed = madvise(at, bytes, MADV_GUARD_INSTALL);
            for (size_t page = first; page < first + done; page++)
                if (holds[page] == VALUES) holds[page] = ZEROS;
        } else if (strcmp(verb, "unguard") == 0) {
            failed = madvise(at, bytes, MADV_GUARD_REMOVE);
        } else if (strcmp(verb, "wipe") == 0) {
            failed = madvise(at, bytes, MADV_WIPEONFORK);
            if (!failed) memset(is_wiped + first, 1, count);
        } else if (strcmp(verb, "vwipe") == 0) {
            failed = wipe_in_child(at, bytes);
            if (!failed) memset(is_wiped + first, 1, count);
        } else if (strcmp(verb, "elsewhere") == 0) {
            failed = wipe_elsewhere();
        } else if (strcmp(verb, "keep") == 0) {
            failed = madvise(at, bytes, MADV_KEEPONFORK);
            if (!failed) memset(is_wiped + first, 0, count);
        } else if (strcmp(verb, "lock") == 0) {
            failed = mlock(at, bytes);
        } else if (strcmp(verb, "unmap") == 0) {
            failed = munmap(at, bytes);
            if (!failed) memset(holds + first, NOTHING, count);
        } else if (strcmp(verb, "seal") == 0) {
            failed = syscall(SYS_mseal, at, bytes, 0) != 0;
        } else if (strcmp(verb, "cover") == 0) {
            failed = cover(at, bytes);
            if (!failed) memset(holds + first, ZEROS, count);
        } else if (strcmp(verb, "resize") == 0) {
            failed = resize(first);
        } else if (strcmp(verb, "enlarge") == 0) {
            failed = enlarge(first, count > 0);
        } else if (strcmp(verb, "vforked") == 0) {
            failed = filter_in_child();
        } else if (strcmp(verb, "threaded") == 0) {
            failed = filter_in_thread();
        } else if (strcmp(verb, "quit") == 0) {
            return 0;
        } else {
            printf("bad %d\n", strcmp(verb, "fork") ? bad_pages(0) : bad_in_children(2, first, count));
            fflush(stdout);
            continue;
        }
        printf("%s %d\n", verb, failed ? errno : 0);
        fflush(stdout);
    }
    return 0;
}
