// A program whose execve takes as long as it is told: slow_exec DIRECTORY
//
// It has a file of a file system that it serves itself (FUSE, in a mount namespace of its own) open with
// O_CLOEXEC. Prints "pid N" and "ready"; the line "exec" has it become "sleep 60", and "stuck" is printed
// when the kernel closes the file for that, in the middle of execve; the line "go on" lets it.

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int device;

static void answer(uint64_t request, int error, const void *body, size_t bytes) {
    struct fuse_out_header head = {.len = sizeof head + bytes, .error = error, .unique = request};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, bytes}};
    if (writev(device, parts, 2) < 0) _exit(4);
}

static struct fuse_attr attributes(uint64_t node) {
    return (struct fuse_attr){.ino = node, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1};
}

// One directory with one file of any name, until nobody has it mounted any more.
static void serve(void) {
    static char bytes[1 << 17];
    char line[64];
    const struct fuse_in_header *head = (void *)bytes;
    while (read(device, bytes, sizeof bytes) >= (ssize_t)sizeof *head) {
        const void *body = bytes + sizeof *head;
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
        } else if (head->opcode == FUSE_FLUSH) {
            dprintf(1, "stuck\n");
            if (fgets(line, sizeof line, stdin) == NULL) _exit(0);
            answer(head->unique, 0, NULL, 0);
        } else if (head->opcode != FUSE_FORGET && head->opcode != FUSE_BATCH_FORGET)
            answer(head->unique, head->opcode == FUSE_RELEASE ? 0 : -38 /* ENOSYS */, NULL, 0);
    }
    _exit(0);
}

int main(int count, char **words) {
    char options[128], path[512], line[64];
    if (count != 2) return 2;
    setvbuf(stdin, NULL, _IONBF, 0); // two processes read it
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("slow", words[1], "fuse.slow", MS_NOSUID | MS_NODEV, options))
        return 77; // not allowed here
    pid_t parent = getpid(), server = fork();
    if (server < 0) return 3;
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(3);
        serve();
    }
    close(device);
    snprintf(path, sizeof path, "%s/file", words[1]);
    if (open(path, O_RDONLY | O_CLOEXEC) < 0) return 3;
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 0;
    execlp("sleep", "sleep", "60", NULL);
    return 3;
}
