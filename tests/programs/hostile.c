// A program with a child in its memory that plays the agent, badly: hostile SOCKET SCRIPT.
//
// A line of the script is one step: "open" connects again, "close" closes, "wait MS" sleeps, "recv MS"
// waits for a message, "begin" begins the order that came last, "send HEX DESCRIPTOR..." sends one. In
// HEX, NUMBER** stands for the number of the last order, VERSION* for that of the protocol
// (CLEW_HOSTILE_VERSION), STAGING*********, AREA************ and BEACON********** for addresses of
// mappings of that kind.

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAGING_BYTES (2ul << 20)
#define AREA_BYTES (64ul << 10)
#define BUFFER_BYTES (STAGING_BYTES + 4096)
#define MOST_DESCRIPTORS 32

static const char *path;
static const char *script;
static char *staging, *area, *beacon;
static int connection = -1;
static uint32_t number, version;
static char *buffer;

static int userfaultfd(int flags) {
    return (int)syscall(SYS_userfaultfd, flags);
}

static void open_connection(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) < 0) _exit(3);
}

static void send_message(int socket, const void *bytes, size_t len, const int *fds, int count) {
    char control[CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)] = {0};
    struct iovec part = {(void *)bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
    }
    sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int receive_message(int socket, void *bytes, size_t len) {
    char control[CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)];
    struct iovec part = {bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    recvmsg(socket, &message, MSG_DONTWAIT);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head == NULL || head->cmsg_type != SCM_RIGHTS) return -1;
    int fd;
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

// A userfaultfd of a process that is no relation of the program's memory.
static int of_another(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0) return -1;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = userfaultfd(O_CLOEXEC | O_NONBLOCK);
        send_message(pair[1], "x", 1, &fd, 1);
        sleep(2);
        _exit(0);
    }
    struct pollfd wait = {pair[0], POLLIN, 0};
    char byte;
    return poll(&wait, 1, 1000) == 1 ? receive_message(pair[0], &byte, 1) : -1;
}

static int descriptor(const char *kind) {
    if (strcmp(kind, "uffd") == 0) return userfaultfd(O_CLOEXEC | O_NONBLOCK);
    if (strcmp(kind, "uffd-blocking") == 0) return userfaultfd(O_CLOEXEC);
    if (strcmp(kind, "uffd-other") == 0) return of_another();
    if (strcmp(kind, "memfd") == 0) return memfd_create("hostile", MFD_CLOEXEC);
    if (strcmp(kind, "file") == 0) return open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (strcmp(kind, "pipe") == 0) {
        int ends[2];
        return pipe(ends) == 0 ? ends[0] : -1;
    }
    if (strcmp(kind, "uffd-armed") == 0) {
        int fd = userfaultfd(O_CLOEXEC | O_NONBLOCK);
        struct uffdio_api api = {.api = UFFD_API};
        ioctl(fd, UFFDIO_API, &api);
        return fd;
    }
    return -1;
}

static void fill_in(char *hex, const char *name, const void *value, size_t bytes) {
    char *at;
    while ((at = strstr(hex, name)) != NULL) {
        for (size_t i = 0; i < bytes; i++) {
            char two[3];
            snprintf(two, sizeof two, "%02x", ((const unsigned char *)value)[i]);
            memcpy(at + 2 * i, two, 2);
        }
    }
}

static void send_step(char *words) {
    static unsigned char bytes[1 << 16];
    char *hex = strtok(words, " ");
    if (hex == NULL || connection < 0) return;
    fill_in(hex, "NUMBER**", &number, 4);
    fill_in(hex, "STAGING*********", &staging, 8);
    fill_in(hex, "AREA************", &area, 8);
    fill_in(hex, "BEACON**********", &beacon, 8);
    fill_in(hex, "VERSION*", &version, 4);
    size_t len = 0;
    unsigned byte;
    while (len < sizeof bytes && sscanf(hex + 2 * len, "%2x", &byte) == 1) {
        bytes[len++] = (unsigned char)byte;
        if (hex[2 * len - 1] == 0) break;
    }
    int fds[MOST_DESCRIPTORS], count = 0;
    for (char *kind; count < MOST_DESCRIPTORS && (kind = strtok(NULL, " ")) != NULL;) {
        int fd = descriptor(kind);
        if (fd >= 0) fds[count++] = fd;
    }
    send_message(connection, bytes, len, fds, count);
    for (int i = 0; i < count; i++) close(fds[i]);
}

static void receive_step(int limit) {
    static uint32_t words[4096];
    struct pollfd wait = {connection, POLLIN, 0};
    if (connection < 0 || poll(&wait, 1, limit) != 1) return;
    memset(words, 0, 16);
    int fd = receive_message(connection, words, sizeof words);
    if (fd >= 0 && buffer == NULL) {
        buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (buffer == MAP_FAILED) buffer = NULL;
    }
    if (fd >= 0) close(fd);
    number = words[3];
}

// The word behind the pages says how far an order has come: 1 pending, 2 begun.
static void begin(void) {
    uint64_t pending = (uint64_t)number << 32 | 1, begun = (uint64_t)number << 32 | 2;
    if (buffer == NULL) return;
    __atomic_compare_exchange_n((uint64_t *)(buffer + STAGING_BYTES), &pending, begun, 0, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
}

static int agent(void *unused) {
    (void)unused;
    static char line[1 << 17];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *steps = fopen(script, "r");
    if (steps == NULL) _exit(2);
    open_connection();
    while (fgets(line, sizeof line, steps) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "send ", 5) == 0) send_step(line + 5);
        if (strncmp(line, "recv ", 5) == 0) receive_step(atoi(line + 5) % 1000);
        if (strncmp(line, "wait ", 5) == 0) usleep(atoi(line + 5) % 1000 * 1000);
        if (strcmp(line, "begin") == 0) begin();
        if (strcmp(line, "close") == 0 && connection >= 0) close(connection), connection = -1;
        if (strcmp(line, "open") == 0 && connection < 0) open_connection();
    }
    _exit(0);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    path = arguments[1];
    script = arguments[2];
    char *wide = mmap(NULL, 2 * STAGING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    staging = (char *)(((uintptr_t)wide + STAGING_BYTES - 1) & ~(STAGING_BYTES - 1));
    area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    beacon = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const char *text = getenv("CLEW_HOSTILE_VERSION");
    version = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
    // Large enough to be managed.
    size_t bytes = 6 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wide == MAP_FAILED || area == MAP_FAILED || beacon == MAP_FAILED || memory == MAP_FAILED) return 2;
    for (size_t i = 0; i < bytes; i++) memory[i] = (char)(i * 31 >> 3);
    // Its stack is in the area, which the daemon leaves alone.
    int child = clone(agent, area + AREA_BYTES, CLONE_VM | SIGCHLD, NULL);
    if (child < 0) return 2;
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
