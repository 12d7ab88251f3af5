// Preloaded into a daemon by tests, which it sees and harms from inside. All it goes by is in the
// environment, all it tells is in a file that outlives the daemon:
//
//     CLEW_HOOK_TABLE    the file, of sizeof(struct table) zero bytes
//     CLEW_HOOK_OWN      file of lines "START END": functions of Clew's own in the program, ascending
//     CLEW_HOOK_CALLS    file of system call numbers that are looked at
//     CLEW_HOOK_POINTS   file of lines "OFFSET POINT": one-byte nops in the program
//     CLEW_HOOK_FAIL     "SITE NTH ERRNO": the NTH time that a call is made there it fails
//     CLEW_HOOK_STOP     "POINT NTH ADDRESS": the NTH time that it is passed the daemon is killed, or
//                        where ADDRESS is not 0, panics: that is a function that does; or where it is
//                        -1 the thread waits there until the table says that it may go on
//
// Addresses are hexadecimal and relative to where the program was loaded.
//
// System calls trap (seccomp, SIGSYS), so that those made inside libraries are seen too. A site is a
// call, what it is asked for (of ioctl and its like), and the two innermost functions of Clew's own
// that led to it. The C library starts and ends threads with all signals blocked, where nothing can
// be trapped: what it calls there is seen by standing in for functions.

#define _GNU_SOURCE
#include "hook.h"
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { DEPTH = 2, MAX_CALLS = 128 };
enum { PTHREAD_CREATE = 10000, ALLOCATION = 10001 }; // beside system call numbers

static struct table *table;
static uintptr_t base, end; // of the program
static struct { uint64_t start, end; } own[1 << 16];
static size_t owned;
static struct { uint64_t offset; uint32_t point; } points[1024];
static size_t points_known;
static struct { uint64_t key, nth; int error; } fail;
static struct { int64_t point; uint64_t nth; uintptr_t address; } stop = {-1, 0, 0};

// The one place from which system calls do not trap.
extern char hook_returns[];
long hook_call(long number, long a, long b, long c, long d, long e, long f);
__asm__(".text\n"
        ".globl hook_call\n"
        ".type hook_call, @function\n"
        "hook_call:\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "mov %r8, %r10\n"
        "mov %r9, %r8\n"
        "mov 8(%rsp), %r9\n"
        "syscall\n"
        ".globl hook_returns\n"
        "hook_returns:\n"
        "ret\n");

static void fatal(const char *what) {
    static const char text[] = "hook: ";
    hook_call(SYS_write, 2, (long)text, sizeof text - 1, 0, 0, 0);
    hook_call(SYS_write, 2, (long)what, (long)strlen(what), 0, 0, 0);
    hook_call(SYS_write, 2, (long)"\n", 1, 0, 0, 0);
    hook_call(SYS_exit_group, 99, 0, 0, 0, 0, 0);
}

static bool is_own(uint64_t offset) {
    size_t low = 0, high = owned;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (own[middle].end <= offset) low = middle + 1;
        else high = middle;
    }
    return low < owned && own[low].start <= offset;
}

static struct site *find(uint32_t number, uint32_t what) {
    void *stack[64];
    uint64_t frames[FRAMES] = {0}, others[DEPTH] = {0};
    int depth = backtrace(stack, 64), found = 0, others_found = 0;
    for (int i = 0; i < depth && found < DEPTH; i++) {
        uintptr_t at = (uintptr_t)stack[i];
        if (at < base || at >= end) continue;
        if (is_own(at - base - 1)) frames[found++] = at - base;
        else if (others_found < DEPTH) others[others_found++] = at - base;
    }
    if (!found) memcpy(frames, others, sizeof others);
    uint64_t key = 0xcbf29ce484222325;
    uint64_t words[2 + DEPTH] = {number, what};
    memcpy(words + 2, frames, DEPTH * sizeof *frames);
    for (size_t i = 0; i < 2 + DEPTH; i++) {
        key ^= words[i];
        key *= 0x100000001b3;
        key ^= key >> 29;
    }
    key |= 1;
    for (size_t i = key % SITES, tries = 0; tries < SITES; i = (i + 1) % SITES, tries++) {
        struct site *site = &table->sites[i];
        uint64_t nobody = 0;
        if (__atomic_compare_exchange_n(&site->key, &nobody, key, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            site->number = number;
            site->what = what;
            memcpy(site->frames, frames, sizeof frames);
            return site;
        }
        if (nobody == key) return site;
    }
    fatal("too many sites");
    return NULL;
}

// The errno with which this call is to fail, or 0.
static int pass(uint32_t number, uint32_t what) {
    struct site *site = find(number, what);
    uint64_t nth = __atomic_add_fetch(&site->count, 1, __ATOMIC_SEQ_CST);
    if (site->key != fail.key || nth != fail.nth) return 0;
    __atomic_add_fetch(&table->fired, 1, __ATOMIC_SEQ_CST);
    return fail.error;
}

static void on_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    long number = info->si_syscall;
    uint32_t what = 0;
    if (number == SYS_ioctl || number == SYS_fcntl || number == SYS_prctl) what = (uint32_t)r[REG_RSI];
    if (number == SYS_prctl) what = (uint32_t)r[REG_RDI];
    int error = pass((uint32_t)number, what);
    if (!error || number == SYS_close)
        r[REG_RAX] = hook_call(number, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
    if (error && number == SYS_brk) r[REG_RAX] = hook_call(SYS_brk, 0, 0, 0, 0, 0, 0);
    else if (error) r[REG_RAX] = -error;
}

static void on_point(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t offset = (uint64_t)r[REG_RIP] - 1 - base;
    size_t i = 0;
    while (i < points_known && points[i].offset != offset) i++;
    if (i == points_known) fatal("a trap that is not ours");
    uint32_t point = points[i].point;
    uint64_t nth = __atomic_add_fetch(&table->points[point], 1, __ATOMIC_SEQ_CST);
    if (point != stop.point || nth != stop.nth) return;
    __atomic_add_fetch(&table->fired, 1, __ATOMIC_SEQ_CST);
    if (stop.address == UINTPTR_MAX) {
        while (!__atomic_load_n(&table->released, __ATOMIC_SEQ_CST)) hook_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
        return;
    }
    if (!stop.address) {
        hook_call(SYS_kill, getpid(), SIGKILL, 0, 0, 0, 0);
        for (;;) hook_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    // As if it were called there, by a place of this name.
    static const struct { const char *file; size_t len; uint32_t line, column; } place = {"hook", 4, 1, 1};
    r[REG_RSP] = ((r[REG_RSP] - 128) & ~15) - 8;
    *(uint64_t *)r[REG_RSP] = (uint64_t)r[REG_RIP];
    r[REG_RDI] = (greg_t)(uintptr_t)&place;
    r[REG_RIP] = (greg_t)(base + stop.address);
}

// ---- what stands in for functions of the C library ----------------------------------------------

static long failed(int error) {
    errno = error;
    return -1;
}

int madvise(void *at, size_t bytes, int advice) {
    int error = table ? pass(SYS_madvise, (uint32_t)advice) : 0;
    if (error) return (int)failed(error);
    long done = hook_call(SYS_madvise, (long)at, (long)bytes, advice, 0, 0, 0);
    return done < 0 ? (int)failed((int)-done) : 0;
}

int munmap(void *at, size_t bytes) {
    int error = table ? pass(SYS_munmap, 0) : 0;
    if (error) return (int)failed(error);
    long done = hook_call(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0);
    return done < 0 ? (int)failed((int)-done) : 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    int error = table ? pass(PTHREAD_CREATE, 0) : 0;
    return error ? error : real(thread, attributes, run, with);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

static __thread bool counting __attribute__((tls_model("initial-exec")));

static void allocated(size_t bytes) {
    if (!table || !__atomic_load_n(&table->armed, __ATOMIC_RELAXED) || counting) return;
    counting = true;
    char name[16] = "";
    hook_call(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0);
    for (size_t i = 0; i < THREADS; i++) {
        uint64_t *known = (uint64_t *)table->threads[i].name, nobody = 0, first;
        memcpy(&first, name, 8);
        // Eight characters tell the daemon's threads apart.
        if (!__atomic_compare_exchange_n(known, &nobody, first, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
            nobody != first)
            continue;
        __atomic_add_fetch(&table->threads[i].allocations, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&table->threads[i].bytes, bytes, __ATOMIC_SEQ_CST);
        uint32_t thread = (uint32_t)i;
        __atomic_add_fetch(&find(ALLOCATION, thread)->count, 1, __ATOMIC_SEQ_CST);
        break;
    }
    counting = false;
}

void *malloc(size_t bytes) {
    allocated(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocated(count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    allocated(bytes);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    allocated(bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **to, size_t alignment, size_t bytes) {
    allocated(bytes);
    *to = __libc_memalign(alignment, bytes);
    return *to ? 0 : ENOMEM;
}

// ---- before main ---------------------------------------------------------------------------------

static int program(struct dl_phdr_info *info, size_t size, void *with) {
    (void)size, (void)with;
    base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t last = base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
            if (last > end) end = last;
        }
    return 1; // the first is the program
}

static FILE *given(const char *name) {
    const char *path = getenv(name);
    if (!path) return NULL;
    FILE *file = fopen(path, "re");
    if (!file) fatal(name);
    return file;
}

static void patch(uint64_t offset) {
    uint8_t *at = (uint8_t *)(base + offset);
    if (*at != 0x90) fatal("a point that is no nop");
    void *page = (void *)((uintptr_t)at & ~4095ul);
    if (hook_call(SYS_mprotect, (long)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0)) fatal("mprotect");
    *at = 0xcc;
    hook_call(SYS_mprotect, (long)page, 4096, PROT_READ | PROT_EXEC, 0, 0, 0);
}

static void install(FILE *calls) {
    struct sock_filter filter[MAX_CALLS + 32];
    size_t n = 0, length;
    uint64_t free_place = (uint64_t)(uintptr_t)hook_returns;
    uint32_t numbers[MAX_CALLS], number;
    size_t count = 0;
    while (fscanf(calls, "%" SCNu32, &number) == 1 && count < MAX_CALLS) numbers[count++] = number;
    length = count + 14;
#define ADD(...) filter[n++] = (struct sock_filter)__VA_ARGS__
#define FIELD(f) offsetof(struct seccomp_data, f)
    (void)length;
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(instruction_pointer)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)free_place, 0, 3));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(instruction_pointer) + 4));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(free_place >> 32), 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)));
    // The C library then starts threads by clone, whose arguments a filter can see.
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(args[0])));
    ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, (uint8_t)(count + 1), 0));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)));
    for (size_t i = 0; i < count; i++)
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], (uint8_t)(count - i), 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    struct sock_fprog whole = {(unsigned short)n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole))
        fatal("the filter is refused");
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CLEW_HOOK_TABLE");
    if (!path) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) fatal("the table cannot be mapped");
    close(file);
    dl_iterate_phdr(program, NULL);
    FILE *lines = given("CLEW_HOOK_OWN");
    while (lines && owned < sizeof own / sizeof *own &&
           fscanf(lines, "%" SCNx64 " %" SCNx64, &own[owned].start, &own[owned].end) == 2)
        owned++;
    if (lines) fclose(lines);
    lines = given("CLEW_HOOK_POINTS");
    while (lines && points_known < sizeof points / sizeof *points &&
           fscanf(lines, "%" SCNx64 " %" SCNu32, &points[points_known].offset, &points[points_known].point) == 2)
        points_known++;
    if (lines) fclose(lines);
    const char *text = getenv("CLEW_HOOK_FAIL");
    if (text && sscanf(text, "%" SCNx64 " %" SCNu64 " %d", &fail.key, &fail.nth, &fail.error) != 3)
        fatal("CLEW_HOOK_FAIL");
    text = getenv("CLEW_HOOK_STOP");
    if (text && sscanf(text, "%" SCNd64 " %" SCNu64 " %" SCNxPTR, &stop.point, &stop.nth, &stop.address) != 3)
        fatal("CLEW_HOOK_STOP");
    // The first one loads the unwinder.
    void *here[4];
    backtrace(here, 4);
    FILE *calls = given("CLEW_HOOK_CALLS");
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = on_point;
    sigaction(SIGTRAP, &action, NULL);
    action.sa_sigaction = on_call;
    sigaction(SIGSYS, &action, NULL);
    for (size_t i = 0; i < points_known; i++) patch(points[i].offset);
    // Nobody else is to be preloaded with this.
    unsetenv("LD_PRELOAD");
    table = mapped;
    table->ready = 1;
    if (calls) {
        install(calls);
        fclose(calls);
    }
}
