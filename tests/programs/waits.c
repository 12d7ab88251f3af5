// Waits for children in every way that finds more of them than it has: waits MODE.
//
//     wall       one child; waits with __WALL until there is none
//     plain      the same with wait()
//     exec MODE  becomes its own subreaper and then this program in MODE
//     reaper     becomes its own subreaper; eight children, each with one that outlives it; waits for
//                all of them
//     storm      two hundred children that end at once, waited for with __WALL
//
// Says how many it found and how many of those it had started.

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256, CHILDREN = 8, STORM = 200 };

static pid_t started[MOST];
static int count;

static void start(void (*work)(void)) {
    pid_t pid = fork();
    if (pid < 0) perror("fork"), _exit(3);
    if (pid == 0) {
        work();
        _exit(7);
    }
    started[count++] = pid;
}

static void nothing(void) {
}

// What the child of a child leaves behind is told by a pipe.
static int ends[2];

static void leave_one_behind(void) {
    pid_t pid = fork();
    if (pid == 0) {
        usleep(150000); // until it has an agent that has said hello
        pid = getpid();
    }
    if (pid < 0 || write(ends[1], &pid, sizeof pid) != sizeof pid) _exit(3);
}

static void wait_for_all(int flags) {
    int found = 0, own = 0, status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, flags)) > 0) {
        found++;
        for (int i = 0; i < count; i++) own += started[i] == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    printf("found %d own %d of %d%s\n", found, own, count, errno == ECHILD ? "" : " and an error");
}

int main(int words, char **word) {
    if (words < 2) return 2;
    if (strcmp(word[1], "exec") == 0 && words == 3) {
        if (prctl(PR_SET_CHILD_SUBREAPER, 1)) return 3;
        execl("/proc/self/exe", "waits", word[2], NULL);
        return 3;
    }
    if (strcmp(word[1], "wall") == 0) {
        start(nothing);
        wait_for_all(__WALL);
    } else if (strcmp(word[1], "plain") == 0) {
        start(nothing);
        wait_for_all(0);
    } else if (strcmp(word[1], "storm") == 0) {
        while (count < STORM) start(nothing);
        wait_for_all(__WALL);
    } else if (strcmp(word[1], "reaper") == 0) {
        if (prctl(PR_SET_CHILD_SUBREAPER, 1) || pipe(ends)) return 3;
        while (count < CHILDREN) start(leave_one_behind);
        wait_for_all(__WALL);
        // What it has been told by children and by those that they left behind: each twice.
        pid_t told[2 * CHILDREN];
        printf("told %zd\n", read(ends[0], told, sizeof told) / (ssize_t)sizeof *told);
    } else return 2;
    int is_reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &is_reaper);
    printf("subreaper %d\n", is_reaper);
    return 0;
}
