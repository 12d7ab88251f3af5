// A robust mutex in a file, and a thread that is killed with it.
//
//     robust FILE hold    prints "pid N" and "ready" when 16 MiB are filled; told "hold", has a thread lock the
//                         mutex, and then one that lies in these as its stack does, and prints "held"; ends when it is
//                         killed. The kernel comes to what was locked last first
//                         told "many", one locks another 150 in turn, and after each one that lies in these: "held"
//     robust FILE count   how many of the 150 say that their owner died
//     robust FILE wait    locks the mutex: "owner died", or "not released" after 30 s

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 16 << 20, STACK = 1 << 20, MANY = 150, PAGE = 4096 };

static pthread_mutex_t *mutex, *own;
static pthread_mutexattr_t kind;
static sem_t is_held;
static char *memory;

static void *hold(void *unused) {
    (void)unused;
    if (pthread_mutex_lock(mutex) == 0 && pthread_mutex_lock(own) == 0) sem_post(&is_held);
    for (;;) pause();
    return NULL;
}

// Slowly: the daemon takes pages out meanwhile.
static void *hold_many(void *unused) {
    (void)unused;
    for (int i = 1; i <= MANY; i++) {
        pthread_mutex_t *near = (pthread_mutex_t *)(memory + (size_t)(200 + i * 5) * PAGE);
        pthread_mutex_init(near, &kind);
        if (pthread_mutex_lock(mutex + i) || pthread_mutex_lock(near)) return NULL;
        usleep(10000);
    }
    sem_post(&is_held);
    for (;;) pause();
    return NULL;
}

static int owners_that_died(void) {
    int died = 0;
    for (int i = 1; i <= MANY; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += died == i - 1 ? 30 : 0; // the first that is not released is waited for
        died += pthread_mutex_timedlock(mutex + i, &until) == EOWNERDEAD;
    }
    return died;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int is_holder = strcmp(arguments[2], "hold") == 0;
    size_t bytes = sizeof *mutex * (1 + MANY);
    int file = open(arguments[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, bytes)) return 3;
    mutex = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mutex == MAP_FAILED) return 3;
    if (strcmp(arguments[2], "count") == 0) return !printf("%d\n", owners_that_died());
    if (!is_holder) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 30;
        puts(pthread_mutex_timedlock(mutex, &until) == EOWNERDEAD ? "owner died" : "not released");
        return 0;
    }
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i <= MANY; i++) pthread_mutex_init(mutex + i, &kind);
    sem_init(&is_held, 0, 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (size_t i = 0; i < BYTES / 4; i++) ((uint32_t *)memory)[i] = i % 2 ? (uint32_t)(i * 2654435761u) : 7;
    own = (pthread_mutex_t *)(memory + BYTES / 4);
    pthread_mutex_init(own, &kind);
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        pthread_t thread;
        if (strcmp(line, "many\n") == 0) {
            if (pthread_create(&thread, NULL, hold_many, NULL)) return 3;
            sem_wait(&is_held);
            puts("held");
            fflush(stdout);
            continue;
        }
        if (strcmp(line, "hold\n")) break;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, memory + BYTES / 2, STACK);
        if (pthread_create(&thread, &attributes, hold, NULL)) return 3;
        sem_wait(&is_held);
        puts("held");
        fflush(stdout);
    }
    return 0;
}
