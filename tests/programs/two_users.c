// A program of one user with a child of another in its memory, which says that it is the program's agent:
//
//     two_users SOCKET UID GROUP HELLO
//
// HELLO is the message in hexadecimal; the program's descriptor goes with it. The child becomes user UID, in GROUP
// besides, before it connects. Prints "pid N", "said" and what then comes of the connection: "closed" or "kept" (for
// five seconds), and stays until its standard input ends.

#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char **words;
static int pidfd;
static volatile int outcome;

static int agent(void *unused) {
    (void)unused;
    gid_t group = (gid_t)atoi(words[3]);
    uid_t uid = (uid_t)atoi(words[2]);
    // Of this process alone: the C library would change all threads of the other one, too.
    if (syscall(SYS_setgroups, 1, &group) || syscall(SYS_setresgid, uid, uid, uid) ||
        syscall(SYS_setresuid, uid, uid, uid))
        _exit(1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, words[1], sizeof address.sun_path - 1);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address))
        _exit(2);
    char bytes[512];
    size_t length = strlen(words[4]) / 2;
    for (size_t i = 0; i < length && i < sizeof bytes; i++)
        sscanf(words[4] + 2 * i, "%2hhx", (unsigned char *)&bytes[i]);
    struct iovec part = {.iov_base = bytes, .iov_len = length};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *descriptor = CMSG_FIRSTHDR(&message);
    descriptor->cmsg_level = SOL_SOCKET;
    descriptor->cmsg_type = SCM_RIGHTS;
    descriptor->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(descriptor), &pidfd, sizeof pidfd);
    if (sendmsg(connection, &message, 0) < 0)
        _exit(3);
    struct pollfd hung_up = {.fd = connection, .events = POLLIN};
    outcome = poll(&hung_up, 1, 5000) == 0 ? 1 : 2;
    // A connection that was kept stays as long as the program.
    if (outcome == 1)
        pause();
    _exit(0);
}

int main(int count, char **arguments) {
    if (count != 5)
        return 64;
    words = arguments;
    pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    printf("pid %d\n", getpid());
    static char stack[64 << 10] __attribute__((aligned(16)));
    int child = clone(agent, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    if (child < 0)
        return 1;
    printf("said\n");
    fflush(stdout);
    while (outcome == 0) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child && outcome == 0) {
            printf("ended with %d\n", WEXITSTATUS(status));
            return 1;
        }
        usleep(10000);
    }
    printf("%s\n", outcome == 1 ? "kept" : "closed");
    fflush(stdout);
    char rest;
    while (read(0, &rest, 1) > 0)
        ;
    syscall(SYS_kill, child, 9);
    return 0;
}
