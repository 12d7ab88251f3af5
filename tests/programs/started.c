/* started SOCKET COUNT: so many processes, each of which tells the control socket that it becomes a program of an app of
 * its own. Says "started" when all have, and ends, with them, with its input. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int tell(const char *path, int number) {
    char line[200], answer[4096];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to))
        return 1;
    int length = snprintf(line, sizeof line,
                          "{\"verb\":\"started\",\"app\":\"app%d\",\"pid\":0,\"command\":\"x\",\"unmanaged\":\"so\"}\n", number);
    if (write(s, line, length) != length || read(s, answer, sizeof answer) <= 0)
        return 1;
    close(s);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int done[2];
    char how;
    if (pipe(done))
        return 1;
    pid_t parent = getpid();
    for (int i = 0; i < atoi(argv[2]); i++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            how = (char)('0' + (getppid() != parent || tell(argv[1], i)));
            if (write(done[1], &how, 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        if (read(done[0], &how, 1) != 1 || how != '0')
            return 1;
    }
    printf("started\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
