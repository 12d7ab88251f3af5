// One thread gives memory the advice that children find nothing there (MADV_WIPEONFORK), all the time; another shuts all threads in
// (TSYNC) by a filter that kills for calls which this program does not make.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 16 << 20, ADVISED = 1 << 20 };

static char *advised;
static atomic_int is_over;

static void *advises(void *unused) {
    while (!is_over) {
        madvise(advised, ADVISED, MADV_WIPEONFORK);
        madvise(advised, ADVISED, MADV_KEEPONFORK);
        memset(advised, 7, ADVISED);
    }
    return unused;
}

int main(void) {
    static const int killed_for[] = {SYS_socket, SYS_connect, SYS_sendmsg, SYS_recvfrom,    SYS_ppoll, SYS_mmap,
                                     SYS_getpid, SYS_tgkill,  SYS_clone,   SYS_close_range, SYS_futex};
    enum { COUNT = sizeof killed_for / sizeof *killed_for };
    struct sock_filter filter[COUNT + 3];
    char line[16];
    char *large = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    advised = mmap(NULL, ADVISED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(large, 2, BYTES);
    memset(advised, 7, ADVISED);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, advises, NULL);
    usleep(300000);
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, killed_for[i], COUNT - i, 0);
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {at, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    // It goes on advising, and is told that it cannot be.
    usleep(300000);
    printf("shut in %ld\n", done);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    puts("over");
    fflush(stdout);
    _exit(0);
}
