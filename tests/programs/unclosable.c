// Sends a file to the agents' socket that nobody can close: unclosable SOCKET
//
// It is the end of a pipe in which a thread of this program is in the middle of a write that never ends: what is
// written lies in memory that nobody brings (a userfaultfd of its own). Prints "sent", and "closed" when the
// connection has been closed at the other end. Ends with its standard input.

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int ends[2];
static volatile pid_t writer;

static void fail(const char *what) {
    perror(what);
    _exit(1);
}

// A page that never comes.
static void *missing(void) {
    long page = sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(uintptr_t)at, page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (at == MAP_FAILED || uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &all))
        fail("userfaultfd");
    return at;
}

static void *write_for_ever(void *page) {
    writer = gettid();
    if (write(ends[1], page, 4096) != 4096) fail("write");
    return NULL;
}

// The writer has the pipe's lock, or will: it waits for its page where /proc says so.
static void wait_until_it_writes(pid_t writer) {
    char path[64], where[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/wchan", writer);
    while (!strstr(where, "userfault")) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(where, sizeof where, file) || fclose(file)) fail(path);
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    pthread_t thread;
    if (pipe2(ends, O_CLOEXEC) || pthread_create(&thread, NULL, write_for_ever, missing())) fail("a pipe");
    while (!writer) usleep(1000);
    wait_until_it_writes(writer);
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    if (to < 0 || connect(to, (void *)&address, sizeof address)) fail("connect");
    char body[] = "nobody's hello", room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec part = {body, sizeof body};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &ends[0], sizeof(int));
    if (sendmsg(to, &message, 0) < 0) fail("sendmsg");
    // The other one is the last from now on.
    close(ends[0]);
    puts("sent");
    fflush(stdout);
    if (read(to, body, 1) < 0) fail("read");
    puts("closed");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
