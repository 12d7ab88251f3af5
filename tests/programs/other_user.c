// A server as many are: begun by one user, it forks, and its child becomes another user and starts its
// program, which uses memory.
//
//     other_user MIB
//
// Prints "pid N", then "child N", and "ready" once the child has its memory. "quit" ends both.

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned nobody = 65534;

static void fail(const char *what) {
    fprintf(stderr, "other_user: %s: %s\n", what, strerror(errno));
    exit(1);
}

// Has its memory, says so on descriptor 3, and stays.
static void serve(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    memset(memory, 7, bytes);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) fail("prctl");
    if (write(3, "x", 1) != 1) fail("write");
    for (;;) pause();
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    size_t bytes = strtoul(argv[1], NULL, 10) << 20;
    if (argc > 2) serve(bytes);
    int done[2];
    if (pipe(done) < 0) fail("pipe");
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        if (dup2(done[1], 3) < 0) fail("dup2");
        if (setgid(nobody) < 0 || setuid(nobody) < 0) fail("setuid");
        char *words[] = {argv[0], argv[1], "serve", NULL};
        execv(argv[0], words);
        fail("execv");
    }
    close(done[1]);
    char byte;
    printf("pid %d\nchild %d\n", getpid(), child);
    fflush(stdout);
    if (read(done[0], &byte, 1) != 1) fail("the child");
    printf("ready\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {}
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
