// Preloaded into a daemon: after it has registered memory, it is held up for a while, as on a machine
// that is busy. What the program maps meanwhile is not registered.
//
//     LD_PRELOAD=slow_register.so clew daemon ...

#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    int result = (int)syscall(SYS_ioctl, fd, request, argument);
    if (request == UFFDIO_REGISTER) usleep(10 * 1000);
    return result;
}
