// One thread gives memory the advice that children find nothing there (MADV_WIPEONFORK); another has a number of the
// program's for itself: it puts a socket there (dup2), hears its own message by it, and closes it. Nobody else may close
// it, read by it or write to it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 64 * 4096, ADVISED = 1500 };

static atomic_int over;
static int failed;

static void *advises(void *unused) {
    for (int i = 0; i < ADVISED; i++) {
        char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(at, 1, BYTES);
        failed += madvise(at, BYTES, MADV_WIPEONFORK) != 0;
        munmap(at, BYTES);
    }
    over = 1;
    return unused;
}

int main(void) {
    int pair[2], closed = 0, taken = 0, foreign = 0;
    char line[16], heard[1024];
    char *large = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 2, 16 << 20);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    int near = fcntl(pair[0], F_DUPFD, 50), far = fcntl(pair[1], F_DUPFD, 60);
    close(pair[0]);
    close(pair[1]);
    // The lowest one that is free, which whoever opens something gets.
    int own = dup(0);
    close(own);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, advises, NULL);
    while (!over) {
        if (dup2(near, own) != own) return 2;
        for (int i = 0; i < 3; i++) {
            send(far, "own", 3, 0);
            usleep(50);
            ssize_t bytes = recv(own, heard, sizeof heard, MSG_DONTWAIT);
            closed += bytes < 0 && errno == EBADF;
            taken += bytes != 3 && !(bytes < 0 && errno == EBADF);
        }
        while (recv(near, heard, sizeof heard, MSG_DONTWAIT) > 0) {}
        while (recv(far, heard, sizeof heard, MSG_DONTWAIT) > 0) foreign++;
        close(own);
        usleep(100);
    }
    pthread_join(thread, NULL);
    printf("closed %d taken %d foreign %d failed %d\n", closed, taken, foreign, failed);
    fflush(stdout);
    return 0;
}
