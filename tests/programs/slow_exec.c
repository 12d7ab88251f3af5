// A program whose execve takes as long as it is told: slow_exec DIRECTORY
//
// It has a file of a file system that it serves itself (slow_files.h) open with O_CLOEXEC. Prints "pid N" and "ready"; the
// line "exec" has it become "sleep 60", and "stuck" is printed when the kernel closes the file for that, in the middle of
// execve; the line "go on" lets it.

#include "slow_files.h"

static void late(void) {
    char line[64];
    dprintf(1, "stuck\n");
    if (fgets(line, sizeof line, stdin) == NULL) _exit(0);
}

int main(int count, char **words) {
    char path[512], line[64];
    if (count != 2) return 2;
    setvbuf(stdin, NULL, _IONBF, 0); // two processes read it
    mount_slow(words[1], FUSE_FLUSH);
    snprintf(path, sizeof path, "%s/file", words[1]);
    if (open(path, O_RDONLY | O_CLOEXEC) < 0) return 3;
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 0;
    execlp("sleep", "sleep", "60", NULL);
    return 3;
}
