// A program that uses a userfaultfd of its own: own_uffd MODE.
//
//     libc    opens it when it is told to, and makes its requests by ioctl()
//     raw     the same by system calls, again and again while it is refused
//     early   opens it at once
//
// Prints "pid N" and "ready" when 16 MiB are filled. Lines it is told: "register" registers them, gives
// up some pages and has a thread of its own serve their faults; "soon" does so on SIGUSR1, which it waits
// for after having said "waiting"; "check" reads everything; "fork" has a
// child read everything and register what it has; "quit".

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, DROPPED = 16, STEP = 256 };

static char *memory;
static int uffd = -1, is_raw, is_registered;
static volatile int served;

static int request(unsigned long what, void *argument) {
    return is_raw ? (int)syscall(SYS_ioctl, uffd, what, argument) : ioctl(uffd, what, argument);
}

static void open_it(void) {
    struct uffdio_api api = {.api = UFFD_API};
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0 || request(UFFDIO_API, &api)) perror("userfaultfd"), exit(3);
}

// Half of each page is the same in all, so that it compresses.
static uint32_t value(size_t page, size_t i) {
    uint32_t x = (uint32_t)(page * 2654435761u + i * 40503u);
    return i % 2 ? x ^ x >> 15 : 7;
}

static void fill(uint32_t *to, size_t page) {
    for (size_t i = 0; i < PAGE / 4; i++) to[i] = value(page, i);
}

// What its own thread puts there when it is touched.
static int is_dropped(size_t page) {
    return is_registered && page % STEP == 0 && page / STEP < DROPPED;
}

static int bad_pages(void) {
    int bad = 0;
    for (size_t page = 0; page < PAGES; page++) {
        const uint32_t *words = (uint32_t *)(memory + page * PAGE);
        size_t wrong = 0;
        for (size_t i = 0; i < PAGE / 4; i++)
            wrong += words[i] != (is_dropped(page) ? 0x5eed + (uint32_t)page : value(page, i));
        bad += wrong > 0;
    }
    return bad;
}

static void *serve(void *unused) {
    (void)unused;
    static uint32_t bytes[PAGE / 4];
    for (;;) {
        struct pollfd wait = {uffd, POLLIN, 0};
        struct uffd_msg message;
        poll(&wait, 1, -1);
        if (read(uffd, &message, sizeof message) != sizeof message) continue;
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uint64_t at = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
        for (size_t i = 0; i < PAGE / 4; i++) bytes[i] = 0x5eed + (uint32_t)((at - (uint64_t)memory) / PAGE);
        struct uffdio_copy copy = {.dst = at, .src = (uint64_t)bytes, .len = PAGE};
        served++;
        if (ioctl(uffd, UFFDIO_COPY, &copy) && errno != EEXIST) perror("UFFDIO_COPY");
    }
    return NULL;
}

// How often it was refused before, or -1 if it was in the end.
static int register_it(void) {
    struct uffdio_register all = {
        .range = {(uint64_t)memory, (uint64_t)PAGES * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    int refused = 0;
    while (request(UFFDIO_REGISTER, &all)) {
        if (!is_raw || errno != EBUSY || ++refused > 600) return -1;
        usleep(50000);
    }
    return refused;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    is_raw = strcmp(arguments[1], "raw") == 0;
    if (strcmp(arguments[1], "early") == 0) open_it();
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (size_t page = 0; page < PAGES; page++) fill((uint32_t *)(memory + page * PAGE), page);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "soon\n") == 0) {
            int signal;
            printf("waiting\n");
            fflush(stdout);
            sigwait(&usr1, &signal);
            strcpy(line, "register\n");
        }
        if (strcmp(line, "register\n") == 0) {
            if (uffd < 0) open_it();
            int refused = register_it();
            if (refused < 0) {
                printf("refused: %s\n", strerror(errno));
            } else {
                pthread_t thread;
                is_registered = 1;
                if (pthread_create(&thread, NULL, serve, NULL)) return 3;
                for (size_t page = 0; page < PAGES; page++)
                    if (is_dropped(page)) madvise(memory + page * PAGE, PAGE, MADV_DONTNEED);
                int bad = bad_pages();
                printf("registered%s served %d bad %d\n", refused ? " at last" : "", served, bad);
            }
        } else if (strcmp(line, "check\n") == 0) {
            printf("bad %d\n", bad_pages());
        } else if (strcmp(line, "fork\n") == 0) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                int bad = is_registered ? 0 : bad_pages();
                open_it();
                _exit(register_it() < 0 ? 101 : bad > 0);
            }
            int status = -1;
            waitpid(child, &status, 0);
            printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        } else if (strcmp(line, "quit\n") == 0) {
            return 0;
        }
        fflush(stdout);
    }
    return 0;
}
