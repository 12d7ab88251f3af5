// Maps pages, fills them, and then does what the lines on its standard input say.
//
//     touch PAGES COMPRESSIBLE_PERCENT SEED
//
// Prints "pid N" and "ready", and one line in answer to each command:
//
//     touch random K SEED   read K random pages             "touched K bad B"
//     touch seq             read all pages in order         "touched N bad B"
//     write K SEED          write K random pages anew       "wrote K"
//     poke K SEED           turn one word of K pages over   "poked K"
//     where                 address of the first page       "at HEX"
//     probe PAGE            read a page, SIGBUS is caught    "right", "wrong" or "bus at HEX"
//     leave                 its first thread ends, another goes on  "left"
//     sum                   checksum over all bytes         "sum HEX bad B"
//     longest               of a page, while the last sum was made  "longest MICROSECONDS"
//     fork-sum              a child computes the sum        "fork-sum HEX bad B"
//     fork-keep             a child stays                   "child PID"
//     child COMMAND...      the child obeys                 (its own answer, or "child gone")
//     drop FIRST COUNT      MADV_DONTNEED                   "dropped COUNT"
//     unmap FIRST COUNT     munmap                          "unmapped COUNT"
//     mlock FIRST COUNT     mlock                           "locked COUNT"
//     move                  mremap to another address       "moved"
//     unregister AGENT      has the agent's userfaultfd let go of all pages  "unregistered"
//     spawn                 posix_spawn of /bin/true        "spawned"
//     storm N               starts short-lived children      "stormed N"
//     forbid NUMBER         seccomp: EPERM for a system call  "forbidden NUMBER"
//     deadly NUMBER         seccomp: who makes a system call is killed  "deadly NUMBER"
//     exec                  starts itself anew by execve    (pid, ready)
//     quit                  ends with status 0
//
// "bad" counts pages that do not hold what was written. What must be there is kept in shared memory.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const uint32_t unmapped = UINT32_MAX, zeros = UINT32_MAX - 1;
static const uint32_t poked = 1u << 31; // added to a version: one word is turned over

static char *pages;
static uint32_t *versions; // of each page
static uint64_t count, seed;
static size_t page_size;
static unsigned percent;

static void fail(const char *what) {
    fprintf(stderr, "touch: %s: %s (pid %d)\n", what, strerror(errno), getpid());
    _exit(1);
}

// As only a program does that wants to harm itself.
static void unregister(pid_t agent) {
    int process = syscall(SYS_pidfd_open, agent, 0);
    if (process < 0) fail("pidfd_open");
    for (int i = 0; i < 64; i++) {
        struct uffdio_range range = {(uintptr_t)pages, count * page_size};
        int theirs = syscall(SYS_pidfd_getfd, process, i, 0);
        if (theirs < 0) continue;
        bool is_done = ioctl(theirs, UFFDIO_UNREGISTER, &range) == 0;
        close(theirs);
        if (is_done) return;
    }
    errno = ENOENT;
    fail("no userfaultfd of the agent");
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static size_t poked_word(uint64_t page) { return mix(page) % (page_size / 8); }

static uint64_t word(uint64_t page, uint32_t version, size_t i) {
    if (version == zeros) return 0;
    uint64_t key = mix(seed ^ page << 32 ^ (version & ~poked));
    // The first part of the page is random, the rest repeats one word.
    uint64_t value = i * 800 < page_size * (100 - percent) ? mix(key + i) : key;
    return version & poked && i == poked_word(page) ? ~value : value;
}

static void fill(uint64_t page) {
    uint64_t *to = (uint64_t *)(pages + page * page_size);
    for (size_t i = 0; i < page_size / 8; i++) to[i] = word(page, versions[page], i);
}

static int check(uint64_t page) {
    const volatile uint64_t *from = (uint64_t *)(pages + page * page_size);
    int bad = 0;
    for (size_t i = 0; i < page_size / 8; i++) {
        uint64_t wanted = word(page, versions[page], i), found = from[i];
        if (found != wanted && bad++ == 0)
            fprintf(stderr, "touch: page %" PRIu64 " offset %zu expected %016" PRIx64 " found %016" PRIx64
                            " version %u pid %d\n",
                    page, i * 8, wanted, found, versions[page], getpid());
    }
    return bad != 0;
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000;
}

static uint64_t longest_us;

static uint64_t sum(int *bad) {
    uint64_t total = seed;
    longest_us = 0;
    for (uint64_t page = 0; page < count; page++) {
        if (versions[page] == unmapped) continue;
        uint64_t begin = now_us();
        const volatile uint64_t *from = (uint64_t *)(pages + page * page_size);
        uint64_t of_page = page;
        for (size_t i = 0; i < page_size / 8; i++) of_page = of_page * 0x9e3779b97f4a7c15 + from[i];
        total = mix(total ^ of_page);
        *bad += check(page);
        uint64_t took = now_us() - begin;
        if (took > longest_us) longest_us = took;
    }
    return total;
}

static sigjmp_buf past;
static void *volatile bus_at;

static void on_bus(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    bus_at = info->si_addr;
    siglongjmp(past, 1);
}

static void probe(uint64_t page) {
    struct sigaction before, action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, &before);
    if (sigsetjmp(past, 1)) printf("bus at %" PRIxPTR "\n", (uintptr_t)bus_at);
    else puts(check(page) ? "wrong" : "right");
    sigaction(SIGBUS, &before, NULL);
}

static bool obey(char *line, char **argv);

static void serve(char **argv) {
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!obey(line, argv)) break;
        fflush(stdout);
    }
    fflush(stdout);
}

// Once the first thread is a zombie.
static void *go_on(void *argv) {
    char path[64], stat[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    while (!strstr(stat, ") Z ")) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(stat, sizeof stat, file) || fclose(file)) fail(path);
        usleep(1000);
    }
    puts("left");
    fflush(stdout);
    serve(argv);
    exit(0);
}

static int child_input = -1;
static pid_t child;

static void keep_child(char **argv) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) fail("pipe");
    fflush(stdout);
    // The child has versions of its own from here on.
    size_t bytes = count * sizeof *versions;
    uint32_t *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) fail("mmap of versions");
    memcpy(copy, versions, bytes);
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        versions = copy;
        close(ends[1]);
        if (dup2(ends[0], 0) < 0) fail("dup2");
        setvbuf(stdin, NULL, _IONBF, 0);
        child_input = -1;
        serve(argv);
        _exit(0);
    }
    munmap(copy, bytes);
    close(ends[0]);
    child_input = ends[1];
    printf("child %d\n", child);
}

static void reap(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) fail("waitpid");
    if (status) {
        fprintf(stderr, "touch: child %d ended with status %#x\n", pid, status);
        _exit(1);
    }
}

// Every usual way to a short-lived child.
static void storm(void) {
    char *args[] = {"true", NULL};
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        execv("/bin/true", args);
        _exit(9);
    }
    reap(pid);
    pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) _exit(check(0));
    reap(pid);
    errno = posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
    if (errno) fail("posix_spawn");
    reap(pid);
    if (system("true")) fail("system");
    FILE *pipe = popen("echo here", "r");
    char line[8] = "";
    if (!pipe || !fgets(line, sizeof line, pipe) || strcmp(line, "here\n") || pclose(pipe)) fail("popen");
}

// What becomes of who makes this system call from now on.
static void filter_call(uint32_t number, uint32_t becomes) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, becomes),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("PR_SET_NO_NEW_PRIVS");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("PR_SET_SECCOMP");
}

static void forbid(uint32_t number) {
    filter_call(number, SECCOMP_RET_ERRNO | EPERM);
    if (syscall(number, -1, 0, 0, 0, 0) != -1 || errno != EPERM) fail("a forbidden call");
}

// Returns false when it is time to end.
static bool obey(char *line, char **argv) {
    uint64_t a, b;
    if (!strncmp(line, "child ", 6)) {
        if (child_input < 0 || dprintf(child_input, "%s\n", line + 6) < 0) {
            puts("child gone");
            return true;
        }
        if (!strcmp(line, "child quit")) {
            reap(child);
            close(child_input);
            child_input = -1;
            puts("child ended");
        }
    } else if (sscanf(line, "touch random %" SCNu64 " %" SCNu64, &a, &b) == 2) {
        int bad = 0;
        for (uint64_t i = 0; i < a; i++) {
            uint64_t page = mix(b + i) % count;
            if (versions[page] != unmapped) bad += check(page);
        }
        printf("touched %" PRIu64 " bad %d\n", a, bad);
    } else if (!strcmp(line, "touch seq")) {
        int bad = 0;
        for (uint64_t page = 0; page < count; page++)
            if (versions[page] != unmapped) bad += check(page);
        printf("touched %" PRIu64 " bad %d\n", count, bad);
    } else if (sscanf(line, "write %" SCNu64 " %" SCNu64, &a, &b) == 2) {
        for (uint64_t i = 0; i < a; i++) {
            uint64_t page = mix(b + i) % count;
            if (versions[page] == unmapped) continue;
            versions[page] = (uint32_t)(mix(b * 31 + i) >> 34) + 1;
            fill(page);
        }
        printf("wrote %" PRIu64 "\n", a);
    } else if (sscanf(line, "poke %" SCNu64 " %" SCNu64, &a, &b) == 2) {
        for (uint64_t i = 0; i < a; i++) {
            uint64_t page = mix(b + i) % count, at = poked_word(page);
            if (versions[page] == unmapped || versions[page] == zeros) continue;
            versions[page] ^= poked;
            ((uint64_t *)(pages + page * page_size))[at] = word(page, versions[page], at);
        }
        printf("poked %" PRIu64 "\n", a);
    } else if (!strcmp(line, "where")) {
        printf("at %" PRIxPTR "\n", (uintptr_t)pages);
    } else if (sscanf(line, "probe %" SCNu64, &a) == 1 && a < count) {
        probe(a);
    } else if (!strcmp(line, "leave")) {
        pthread_t thread;
        fflush(stdout);
        if (pthread_create(&thread, NULL, go_on, argv)) fail("pthread_create");
        pthread_exit(NULL);
    } else if (!strcmp(line, "sum")) {
        int bad = 0;
        uint64_t total = sum(&bad);
        printf("sum %016" PRIx64 " bad %d\n", total, bad);
    } else if (!strcmp(line, "longest")) {
        printf("longest %" PRIu64 "\n", longest_us);
    } else if (!strcmp(line, "fork-sum")) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (pid == 0) {
            int bad = 0;
            uint64_t total = sum(&bad);
            printf("fork-sum %016" PRIx64 " bad %d\n", total, bad);
            fflush(stdout);
            _exit(0);
        }
        reap(pid);
    } else if (!strcmp(line, "fork-keep")) {
        keep_child(argv);
    } else if (sscanf(line, "drop %" SCNu64 " %" SCNu64, &a, &b) == 2 && a + b <= count) {
        if (madvise(pages + a * page_size, b * page_size, MADV_DONTNEED)) fail("MADV_DONTNEED");
        for (uint64_t page = a; page < a + b; page++) versions[page] = zeros;
        printf("dropped %" PRIu64 "\n", b);
    } else if (sscanf(line, "unmap %" SCNu64 " %" SCNu64, &a, &b) == 2 && a + b <= count) {
        if (munmap(pages + a * page_size, b * page_size)) fail("munmap");
        for (uint64_t page = a; page < a + b; page++) versions[page] = unmapped;
        printf("unmapped %" PRIu64 "\n", b);
    } else if (sscanf(line, "mlock %" SCNu64 " %" SCNu64, &a, &b) == 2 && a + b <= count) {
        if (mlock(pages + a * page_size, b * page_size)) fail("mlock");
        printf("locked %" PRIu64 "\n", b);
    } else if (!strcmp(line, "readonly")) {
        if (mprotect(pages, count * page_size, PROT_READ)) fail("mprotect");
        puts("readonly");
    } else if (!strcmp(line, "move")) {
        size_t bytes = count * page_size;
        void *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (to == MAP_FAILED) fail("mmap");
        pages = mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (pages == MAP_FAILED) fail("mremap");
        puts("moved");
    } else if (sscanf(line, "unregister %" SCNu64, &a) == 1) {
        unregister((pid_t)a);
        puts("unregistered");
    } else if (!strcmp(line, "spawn")) {
        char *args[] = {"true", NULL};
        pid_t pid;
        errno = posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
        if (errno) fail("posix_spawn");
        reap(pid);
        puts("spawned");
    } else if (sscanf(line, "storm %" SCNu64, &a) == 1) {
        for (uint64_t i = 0; i < a; i++) storm();
        printf("stormed %" PRIu64 "\n", a);
    } else if (sscanf(line, "forbid %" SCNu64, &a) == 1) {
        forbid(a);
        printf("forbidden %" PRIu64 "\n", a);
    } else if (sscanf(line, "deadly %" SCNu64, &a) == 1) {
        filter_call(a, SECCOMP_RET_KILL_PROCESS);
        printf("deadly %" PRIu64 "\n", a);
    } else if (!strcmp(line, "exec")) {
        fflush(stdout);
        execv("/proc/self/exe", argv);
        fail("execv");
    } else if (!strcmp(line, "quit")) {
        return false;
    } else {
        printf("what? %s\n", line);
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: touch PAGES COMPRESSIBLE_PERCENT SEED\n");
        return 2;
    }
    count = strtoull(argv[1], NULL, 10);
    percent = atoi(argv[2]);
    seed = strtoull(argv[3], NULL, 10);
    page_size = sysconf(_SC_PAGESIZE);
    signal(SIGPIPE, SIG_IGN); // a child may have been killed
    // Nothing is read ahead: what follows an "exec" line is for the new image.
    setvbuf(stdin, NULL, _IONBF, 0);
    pages = mmap(NULL, count * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    versions = mmap(NULL, count * sizeof *versions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || versions == MAP_FAILED) fail("mmap");
    for (uint64_t page = 0; page < count; page++) fill(page);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    serve(argv);
    return 0;
}
