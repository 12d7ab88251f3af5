// Preloaded into a daemon: it believes that it has sealed its memory, and has not, as daemons were
// that did not seal it.
//
//     LD_PRELOAD=unsealed.so clew daemon ...

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    if (command == F_ADD_SEALS) return 0;
    return (int)syscall(SYS_fcntl, fd, command, argument);
}
