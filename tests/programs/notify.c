// Runs a command and decides which system calls of Clew's preloaded object fail there.
//
//     notify TABLE CALLS "SITE NTH ERRNO" COMMAND...
//
// TABLE and CALLS are as for hook.c. The object's system calls are instructions of its own, in the
// program and in the agent, so a site is the address of one, relative to where the object was loaded.
// The agent blocks all signals: nothing can be trapped there. Each call asks this process instead
// (seccomp, USER_NOTIF).

#define _GNU_SOURCE
#include "hook.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
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
#include <unistd.h>

enum { MAX_CALLS = 128, KNOWN = 1024 };

static struct table *table;
static struct { uint64_t key, nth; int error; } failing;

static void fatal(const char *what) {
    fprintf(stderr, "notify: %s: %s\n", what, strerror(errno));
    _exit(99);
}

// Address of the call in the object, or 0 if it is not there.
static uint64_t place(pid_t pid, uint64_t ip) {
    static struct { pid_t pid; uint64_t ip, offset; } known[KNOWN];
    size_t slot = (ip ^ (uint64_t)pid * 977) % KNOWN;
    if (known[slot].pid == pid && known[slot].ip == ip) return known[slot].offset;
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    uint64_t offset = 0, base = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t start, end, at;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &start, &end, &at) != 3) continue;
        if (!strstr(line, "/libclew_agent-")) continue;
        if (!base) base = start;
        if (start <= ip && ip < end) offset = ip - base;
    }
    if (maps) fclose(maps);
    known[slot].pid = pid;
    known[slot].ip = ip;
    known[slot].offset = offset;
    return offset;
}

static struct site *find(uint64_t offset, uint32_t number, uint32_t what) {
    for (size_t i = offset % SITES, tries = 0; tries < SITES; i = (i + 1) % SITES, tries++) {
        struct site *site = &table->sites[i];
        if (site->key == 0) {
            site->key = offset;
            site->number = number;
            site->what = what;
            site->frames[0] = offset;
        }
        if (site->key == offset) return site;
    }
    fatal("too many sites");
    return NULL;
}

static int install(const char *path) {
    FILE *calls = fopen(path, "re");
    if (!calls) fatal(path);
    uint32_t numbers[MAX_CALLS], number;
    size_t count = 0, n = 0;
    while (fscanf(calls, "%" SCNu32, &number) == 1 && count < MAX_CALLS) numbers[count++] = number;
    fclose(calls);
    struct sock_filter filter[MAX_CALLS + 8];
#define ADD(...) filter[n++] = (struct sock_filter)__VA_ARGS__
#define FIELD(f) offsetof(struct seccomp_data, f)
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)));
    for (size_t i = 0; i < count; i++)
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], (uint8_t)(count - i), 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    struct sock_fprog whole = {(unsigned short)n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fatal("PR_SET_NO_NEW_PRIVS");
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &whole);
    if (fd < 0) fatal("seccomp");
    return (int)fd;
}

static void decide(int listener) {
    struct seccomp_notif asked;
    memset(&asked, 0, sizeof asked);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked)) return; // it is gone again
    struct seccomp_notif_resp answer = {.id = asked.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    uint64_t offset = place((pid_t)asked.pid, asked.data.instruction_pointer);
    if (offset) {
        uint32_t number = (uint32_t)asked.data.nr, what = 0;
        if (number == SYS_ioctl || number == SYS_fcntl) what = (uint32_t)asked.data.args[1];
        if (number == SYS_prctl) what = (uint32_t)asked.data.args[0];
        struct site *site = find(offset, number, what);
        if (++site->count == failing.nth && site->key == failing.key) {
            table->fired++;
            answer.flags = 0;
            answer.error = -failing.error;
        }
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int file = open(argv[1], O_RDWR | O_CLOEXEC), ends[2], taken[2];
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || table == MAP_FAILED) fatal(argv[1]);
    if (sscanf(argv[3], "%" SCNx64 " %" SCNu64 " %d", &failing.key, &failing.nth, &failing.error) != 3) return 2;
    if (pipe2(ends, O_CLOEXEC) || pipe2(taken, O_CLOEXEC)) fatal("pipe");
    pid_t child = fork();
    if (child < 0) fatal("fork");
    if (child == 0) {
        int listener = install(argv[2]);
        // Nobody answers before this process has it; read and write are not asked about.
        char byte;
        if (write(ends[1], &listener, sizeof listener) != sizeof listener) fatal("write");
        if (read(taken[0], &byte, 1) != 1) fatal("read");
        execvp(argv[4], argv + 4);
        fatal(argv[4]);
    }
    int theirs;
    if (read(ends[0], &theirs, sizeof theirs) != sizeof theirs) fatal("read");
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    int listener = (int)syscall(SYS_pidfd_getfd, process, theirs, 0);
    if (process < 0 || listener < 0) fatal("the listener");
    if (write(taken[1], "", 1) != 1) fatal("write");
    // Lines are the program's; its end is noticed by this.
    close(0);
    close(1);
    table->ready = 1;
    // Until the last process with the filter, which may be an agent's, has ended.
    bool ended = false;
    int status = 0;
    for (;;) {
        struct pollfd polls[2] = {{listener, POLLIN, 0}, {ended ? -1 : process, POLLIN, 0}};
        if (poll(polls, 2, -1) < 0 && errno != EINTR) fatal("poll");
        if (polls[0].revents & POLLIN) decide(listener);
        else if (polls[0].revents) break;
        if (polls[1].revents && waitpid(child, &status, 0) == child) ended = true;
    }
    if (!ended) waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
