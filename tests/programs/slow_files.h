// A file system that a program serves itself (FUSE, in a mount namespace of its own): one directory with one
// file of any name, that answers at once but for one kind of request. There it calls late(), of the program's.

#pragma once
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILE_BYTES = 4096 };

static void late(void);

static int device;

static void answer(uint64_t request, int error, const void *body, size_t bytes) {
    struct fuse_out_header head = {.len = sizeof head + bytes, .error = error, .unique = request};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, bytes}};
    if (writev(device, parts, 2) < 0) _exit(4);
}

static struct fuse_attr attributes(uint64_t node) {
    uint32_t mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
    return (struct fuse_attr){.ino = node, .mode = mode, .nlink = 1, .size = node == 1 ? 0 : FILE_BYTES};
}

// Until nobody has it mounted any more.
static void serve(uint32_t slow) {
    static char bytes[1 << 17], zeros[FILE_BYTES];
    const struct fuse_in_header *head = (void *)bytes;
    while (read(device, bytes, sizeof bytes) >= (ssize_t)sizeof *head) {
        const void *body = bytes + sizeof *head;
        if (head->opcode == slow) late();
        if (head->opcode == FUSE_INIT) {
            const struct fuse_init_in *in = body;
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = in->minor, .max_write = 1 << 16};
            answer(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_LOOKUP) {
            struct fuse_entry_out out = {.nodeid = 2, .attr = attributes(2)};
            answer(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_GETATTR) {
            struct fuse_attr_out out = {.attr = attributes(head->nodeid)};
            answer(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_OPEN) {
            struct fuse_open_out out = {.fh = 1};
            answer(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_READ) {
            answer(head->unique, 0, zeros, sizeof zeros);
        } else if (head->opcode == FUSE_FLUSH) {
            answer(head->unique, 0, NULL, 0);
        } else if (head->opcode != FUSE_FORGET && head->opcode != FUSE_BATCH_FORGET)
            answer(head->unique, head->opcode == FUSE_RELEASE ? 0 : -38 /* ENOSYS */, NULL, 0);
    }
    _exit(0);
}

// Mounts it at `directory` and serves it from a process of its own, late for requests of the kind `slow`. Ends this one
// with 77 where that is not allowed.
static inline void mount_slow(const char *directory, uint32_t slow) {
    char options[128];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("slow", directory, "fuse.slow", MS_NOSUID | MS_NODEV, options))
        _exit(77);
    pid_t parent = getpid(), server = fork();
    if (server < 0) _exit(3);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(3);
        serve(slow);
    }
    close(device);
}

// The same, with its file mapped: reading that page is late. Ends this process with 3 where it cannot be mapped.
static inline void *map_slow(const char *directory) {
    char path[512];
    mount_slow(directory, FUSE_READ);
    snprintf(path, sizeof path, "%s/file", directory);
    int file = open(path, O_RDONLY);
    void *page = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || page == MAP_FAILED) _exit(3);
    return page;
}
