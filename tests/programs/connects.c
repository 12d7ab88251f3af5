/* connects SOCKET KEEP: connects to agents' socket without end, and keeps so many connections open. Says so once it has
 * begun. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, argv[1], sizeof to.sun_path - 1);
    long keep = atol(argv[2]), made = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if ((long)limit.rlim_cur < keep + 100)
        return 2;
    int *kept = calloc(keep, sizeof *kept);
    for (long i = 0;; i = (i + 1) % keep) {
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0)
            return 1;
        if (connect(s, (struct sockaddr *)&to, sizeof to) < 0) {
            if (errno != EAGAIN)
                return 1;
            close(s);
            continue;
        }
        if (kept[i])
            close(kept[i]);
        kept[i] = s;
        if (++made == keep) {
            puts("connects");
            fflush(stdout);
        }
    }
}
