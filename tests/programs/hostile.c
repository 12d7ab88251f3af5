// A program with a child in its memory that plays the agent, badly: hostile SOCKET SCRIPT.
//
// A line of the script is one step:
//
//     open, close           connects again, closes
//     besides               connects again, and leaves the connection as it is
//     opens N               connects N times besides, and says nothing there
//     mark FILE             makes a file: so far it has come
//     wait MS, recv MS      sleeps; waits for a message
//     await                 waits for a message as long as it takes (a minute at most)
//     begin                 begins the order that came last
//     hold                  awaits orders until it has begun one
//     send HEX DESCRIPTOR...  sends a message
//     truncate N, chmod OCTAL, append, punch, map N   does it to the buffer
//     lock                  writes to the buffer what never comes, and has the file's lock meanwhile
//     flood MS              sends answers that nobody asked for
//     asks HEX              the program itself connects, sends this, and leaves the connection as it is
//     exec                  the program executes another, the agent stays in its memory
//     fork                  a forked child of it goes on with the script
//     replace               another process connects and ends, and one in the program's memory has its number
//     touch                 its memory faults, behind an event
//     block                 makes the userfaultfd that the daemon gave it wait for messages
//     race MS               as block, again and again, and reads the daemon's messages
//
// In HEX, NUMBER** stands for the number of the last order, VERSION* for that of the protocol
// (CLEW_HOSTILE_VERSION), STAGING*********, AREA************ and BEACON********** for addresses of
// mappings of that kind, MEMORY********** and NEXT************ for the first two pages of what is managed, SPACE***********
// and SECRET********** for what the beacon says.
//
// Ends with 10 if an order to take came, with 20 if the size of the buffer could be changed.

#define _GNU_SOURCE
#include <errno.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STAGING_BYTES (2ul << 20)
#define AREA_BYTES (64ul << 10)
#define BUFFER_BYTES (STAGING_BYTES + 4096)
#define MOST_DESCRIPTORS 32

static const char *path;
static const char *script;
static char *staging, *area, *beacon, *memory, *next_page;
static int connection = -1;
static uint32_t number, version;
static char *buffer;
static int buffer_fd = -1, given = -1; // the buffer, what came with it
static uint64_t says[2];
static int outcome;
// What the program is to do, in the memory that both share: 0 nothing, 1 execute another, 2 touch, 3 send what is to send.
static volatile int asked;
static unsigned char to_send[256];
static size_t to_send_len;

static int userfaultfd(int flags) {
    return (int)syscall(SYS_userfaultfd, flags);
}

static int connected(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) _exit(3);
    return fd;
}

static void open_connection(void) {
    connection = connected();
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

// The first two descriptors that came along are in `fds`, or -1.
static void receive_message(int socket, void *bytes, size_t len, int fds[2]) {
    char control[CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)];
    struct iovec part = {bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    recvmsg(socket, &message, MSG_DONTWAIT);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    fds[0] = fds[1] = -1;
    if (head == NULL || head->cmsg_type != SCM_RIGHTS) return;
    size_t got = head->cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(head), got < 2 * sizeof(int) ? got : 2 * sizeof(int));
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
    int fds[2] = {-1, -1};
    if (poll(&wait, 1, 1000) == 1) receive_message(pair[0], &byte, 1, fds);
    return fds[0];
}

// A process that has ended, and is a zombie until the script is over.
static int of_a_dead(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    return (int)syscall(SYS_pidfd_open, child, 0);
}

static int rest(void *unused) {
    (void)unused;
    pause();
    return 0;
}

// A thread of this process, which shares the program's memory and is no process.
static int of_a_thread(void) {
    static char stack[4096] __attribute__((aligned(16)));
    static int thread;
    int flags = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;
    if (thread == 0) thread = clone(rest, stack + sizeof stack, flags, NULL);
    return (int)syscall(SYS_pidfd_open, thread, O_EXCL);
}

static int descriptor(const char *kind) {
    if (strcmp(kind, "program") == 0) return (int)syscall(SYS_pidfd_open, getppid(), 0);
    if (strcmp(kind, "itself") == 0) return (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (strcmp(kind, "another") == 0) return (int)syscall(SYS_pidfd_open, 1, 0);
    if (strcmp(kind, "dead") == 0) return of_a_dead();
    if (strcmp(kind, "thread") == 0) return of_a_thread();
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

static size_t bytes_of(char *hex, unsigned char *bytes, size_t most) {
    fill_in(hex, "NUMBER**", &number, 4);
    fill_in(hex, "STAGING*********", &staging, 8);
    fill_in(hex, "AREA************", &area, 8);
    fill_in(hex, "BEACON**********", &beacon, 8);
    fill_in(hex, "MEMORY**********", &memory, 8);
    fill_in(hex, "NEXT************", &next_page, 8);
    fill_in(hex, "VERSION*", &version, 4);
    fill_in(hex, "SPACE***********", &says[0], 8);
    fill_in(hex, "SECRET**********", &says[1], 8);
    size_t len = 0;
    unsigned byte;
    while (len < most && sscanf(hex + 2 * len, "%2x", &byte) == 1) {
        bytes[len++] = (unsigned char)byte;
        if (hex[2 * len - 1] == 0) break;
    }
    return len;
}

static void send_step(char *words) {
    static unsigned char bytes[1 << 16];
    char *hex = strtok(words, " ");
    if (hex == NULL || connection < 0) return;
    size_t len = bytes_of(hex, bytes, sizeof bytes);
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
    int fds[2];
    receive_message(connection, words, sizeof words, fds);
    if (fds[0] >= 0 && buffer == NULL) {
        buffer_fd = fds[0];
        given = fds[1];
        buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, buffer_fd, 0);
        if (buffer == MAP_FAILED) buffer = NULL;
    } else {
        if (fds[0] >= 0) close(fds[0]);
        if (fds[1] >= 0) close(fds[1]);
    }
    if (words[1] == 4 && outcome == 0) outcome = 10;
    number = words[3];
}

static void do_to_buffer(const char *line) {
    if (strncmp(line, "truncate ", 9) == 0 && ftruncate(buffer_fd, atol(line + 9)) == 0) outcome = 20;
    if (strncmp(line, "chmod ", 6) == 0) fchmod(buffer_fd, (mode_t)strtoul(line + 6, NULL, 8));
    if (strcmp(line, "append") == 0) fcntl(buffer_fd, F_SETFL, O_APPEND | O_NONBLOCK);
    if (strcmp(line, "punch") == 0)
        fallocate(buffer_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BUFFER_BYTES);
    if (strncmp(line, "map ", 4) == 0) {
        size_t bytes = strtoul(line + 4, NULL, 10);
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer_fd, 0);
        if (mapped != MAP_FAILED) madvise(mapped, bytes, MADV_REMOVE);
    }
}

// Another process in the program's memory: the agent goes on.
static int write_for_ever(void *page) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pwrite(buffer_fd, page, 4096, 0);
    _exit(2);
}

static void lock(void) {
    static char stack[16 << 10] __attribute__((aligned(16)));
    char path[64], where[64] = "";
    void *missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int uffd = userfaultfd(O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(uintptr_t)missing, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_API, &api) < 0 || ioctl(uffd, UFFDIO_REGISTER, &all) < 0) _exit(11);
    pid_t writer = clone(write_for_ever, stack + sizeof stack, CLONE_VM | SIGCHLD, missing);
    snprintf(path, sizeof path, "/proc/%d/wchan", writer);
    while (strstr(where, "userfault") == NULL) {
        FILE *file = fopen(path, "r");
        if (file == NULL) _exit(12);
        if (fgets(where, sizeof where, file) == NULL) where[0] = 0;
        fclose(file);
        usleep(1000);
    }
}

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void flood(int ms) {
    uint32_t answer[4] = {0, 5, 0, 0xffffffff};
    memcpy(answer, "CLEW", 4);
    for (long until = now() + ms; now() < until;)
        if (send(connection, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) return;
}

static void race(int ms) {
    struct uffd_msg messages[4];
    if (given < 0) return;
    for (long until = now() + ms; now() < until;) {
        asked = 2;
        for (int i = 0; i < 100; i++) fcntl(given, F_SETFL, 0);
        fcntl(given, F_SETFL, O_NONBLOCK);
        // What it has read nobody else answers: the program goes on, and causes more.
        struct uffdio_zeropage zero = {.range = {(uintptr_t)beacon, 4096}};
        if (read(given, messages, sizeof messages) > 0) ioctl(given, UFFDIO_ZEROPAGE, &zero);
        fcntl(given, F_SETFL, 0);
    }
}

// The program becomes another one: not the agent, which shares its memory only.
static void have_executed(void) {
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", getppid());
    asked = 1;
    for (int i = 0; i < 60000 && strcmp(name, "sleep\n") != 0; i++) {
        usleep(1000);
        FILE *file = fopen(path, "r");
        if (file == NULL || fgets(name, sizeof name, file) == NULL) _exit(5);
        fclose(file);
    }
}

static int wait_for_the_end(void *unused) {
    (void)unused;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pause() < 0) {}
    return 0;
}

// Who connected is gone, and his number is that of a process that shares the program's memory.
static void replace(void) {
    if (connection >= 0) close(connection);
    connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t other = fork();
    if (other == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        strncpy(address.sun_path, path, sizeof address.sun_path - 1);
        _exit(connect(connection, (struct sockaddr *)&address, sizeof address) != 0);
    }
    int status;
    if (other < 0 || waitpid(other, &status, 0) != other || status != 0) _exit(7);
    int stack_bytes = 16 << 10;
    char *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1000; i++) {
        // The next process is to have its number; somebody else may be quicker.
        FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
        if (last == NULL || fprintf(last, "%d", other - 1) < 0 || fclose(last) != 0) _exit(8);
        pid_t next = clone(wait_for_the_end, stack + stack_bytes, CLONE_VM | SIGCHLD, NULL);
        if (next == other) return;
        if (next > 0) kill(next, SIGKILL);
        if (next > 0) waitpid(next, NULL, 0);
    }
    _exit(9);
}

static void have_done(int what) {
    asked = what;
    for (int i = 0; asked != 0; i++) {
        if (i == 60000) _exit(6);
        usleep(1000);
    }
}

// The word behind the pages says how far an order has come: 1 pending, 2 begun.
static int begin(void) {
    uint64_t pending = (uint64_t)number << 32 | 1, begun = (uint64_t)number << 32 | 2;
    if (buffer == NULL) return 0;
    return __atomic_compare_exchange_n((uint64_t *)(buffer + STAGING_BYTES), &pending, begun, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static FILE *steps;

static int agent(void *unused);

// What the program itself does: waits for the agent, and does what that asks for.
static int program(void) {
    // Its stack is in the area, which the daemon leaves alone.
    int child = clone(agent, area + AREA_BYTES, CLONE_VM | SIGCHLD, NULL);
    if (child < 0) return 2;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (asked == 1) execlp("sleep", "sleep", "60", NULL);
        if (asked == 3) {
            send_message(connected(), to_send, to_send_len, NULL, 0);
            asked = 0;
        }
        if (asked == 2) {
            madvise(beacon, 4096, MADV_DONTNEED);
            *(volatile char *)beacon;
            asked = 0;
        }
        usleep(200);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

// The child has all of the memory, and its own userfaultfd where the parent's was armed.
static void go_on_in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memcpy(says, beacon, sizeof says);
        connection = buffer_fd = given = -1;
        buffer = NULL;
        // This stack is the area: the child's agent gets another.
        area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED) _exit(2);
        _exit(program());
    }
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

static int agent(void *unused) {
    (void)unused;
    static char line[1 << 17];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_connection();
    while (fgets(line, sizeof line, steps) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (buffer_fd >= 0) do_to_buffer(line);
        if (strcmp(line, "await") == 0) receive_step(60000);
        if (strncmp(line, "flood ", 6) == 0 && connection >= 0) flood(atoi(line + 6) % 1000);
        if (strncmp(line, "race ", 5) == 0) race(atoi(line + 5) % 1000);
        if (strncmp(line, "opens ", 6) == 0) {
            int before = connection;
            for (int i = atoi(line + 6) % 1000; i > 0; i--) open_connection();
            connection = before;
        }
        if (strncmp(line, "mark ", 5) == 0) close(creat(line + 5, 0600));
        if (strcmp(line, "exec") == 0) have_executed();
        if (strcmp(line, "replace") == 0) replace();
        if (strcmp(line, "lock") == 0 && buffer_fd >= 0) lock();
        if (strcmp(line, "fork") == 0) go_on_in_child();
        if (strcmp(line, "touch") == 0) have_done(2);
        if (strncmp(line, "asks ", 5) == 0) {
            to_send_len = bytes_of(line + 5, to_send, sizeof to_send);
            have_done(3);
        }
        if (strcmp(line, "block") == 0 && given >= 0) fcntl(given, F_SETFL, 0);
        if (strncmp(line, "send ", 5) == 0) send_step(line + 5);
        if (strncmp(line, "recv ", 5) == 0) receive_step(atoi(line + 5) % 1000);
        if (strncmp(line, "wait ", 5) == 0) usleep(atoi(line + 5) % 1000 * 1000);
        if (strcmp(line, "begin") == 0) begin();
        if (strcmp(line, "hold") == 0)
            for (long until = now() + 60000; !begin();) {
                if (now() > until) _exit(13);
                receive_step(1000);
            }
        if (strcmp(line, "close") == 0 && connection >= 0) close(connection), connection = -1;
        if (strcmp(line, "open") == 0 && connection < 0) open_connection();
        if (strcmp(line, "besides") == 0) open_connection();
    }
    _exit(outcome);
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
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wide == MAP_FAILED || area == MAP_FAILED || beacon == MAP_FAILED || memory == MAP_FAILED) return 2;
    next_page = memory + 4096;
    for (size_t i = 0; i < bytes; i++) memory[i] = (char)(i * 31 >> 3);
    // Missing in every child, where the daemon says what is in it.
    madvise(beacon, 4096, MADV_WIPEONFORK);
    // All of it read now: parent and child have one position in the file.
    static char steps_text[1 << 18];
    steps = fopen(script, "r");
    if (steps == NULL) return 2;
    size_t len = fread(steps_text, 1, sizeof steps_text, steps);
    fclose(steps);
    steps = fmemopen(steps_text, len == 0 ? 1 : len, "r");
    if (steps == NULL) return 2;
    return program();
}
