/* Makes random sequences of allowed system calls with unusual arguments, from a seed.
 *
 *     guest SEED SECONDS < TABLE      lines of TABLE: NUMBER NAME
 *
 * Each sequence is made by a child of its own, four at a time, which may end as it likes; every call in it is interrupted after a moment. The first
 * process only starts and ends children, and prints what came of it:
 *
 *     calls: N    distinct: calls of the table that were made    succeeded: those that once did not fail    children: N    killed: N
 *
 * Left out: what attaches filters (their freeing can stop the host's kernel where it is not refused), what ends the caller at once,
 * and signals to others.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CALLS = 512, SCRATCH = 1 << 16, SEQUENCE = 400, SLOTS = 4 };
static const double PATIENCE = 0.7;

struct call {
    long number;
    char name[32];
    const char *kinds;
};

/* What the arguments of a call are: f descriptor, p pointer, s path, n size, i flags or a small number, d process, g signal, a address
 * in memory of its own, o offset, r request number, l level of a socket option, x anything. */
static const struct { const char *name, *kinds; } KINDS[] = {
    {"read", "fpn"}, {"write", "fpn"}, {"pread64", "fpno"}, {"pwrite64", "fpno"}, {"readv", "fpi"}, {"writev", "fpi"},
    {"preadv", "fpio"}, {"pwritev", "fpio"}, {"preadv2", "fpiooi"}, {"pwritev2", "fpiooi"}, {"lseek", "foi"}, {"close", "f"},
    {"close_range", "ffi"}, {"dup", "f"}, {"dup2", "ff"}, {"dup3", "ffi"}, {"flock", "fi"}, {"fsync", "f"}, {"fdatasync", "f"},
    {"sync_file_range", "fooi"}, {"sendfile", "ffpn"}, {"splice", "fpfpni"}, {"tee", "ffni"}, {"copy_file_range", "fpfpni"},
    {"readahead", "fon"}, {"fadvise64", "fooi"}, {"pipe2", "pi"}, {"pipe", "p"}, {"open", "sii"}, {"openat", "fsii"}, {"creat", "si"},
    {"stat", "sp"}, {"lstat", "sp"}, {"fstat", "fp"}, {"newfstatat", "fspi"}, {"statx", "fsiip"}, {"statfs", "sp"}, {"fstatfs", "fp"},
    {"access", "si"}, {"faccessat", "fsi"}, {"faccessat2", "fsii"}, {"getdents", "fpn"}, {"getdents64", "fpn"}, {"readlink", "spn"},
    {"readlinkat", "fspn"}, {"getcwd", "pn"}, {"chdir", "s"}, {"fchdir", "f"}, {"truncate", "so"}, {"ftruncate", "fo"},
    {"fallocate", "fioo"}, {"rename", "ss"}, {"renameat", "fsfs"}, {"renameat2", "fsfsi"}, {"link", "ss"}, {"linkat", "fsfsi"},
    {"symlink", "ss"}, {"symlinkat", "sfs"}, {"unlink", "s"}, {"unlinkat", "fsi"}, {"mkdir", "si"}, {"mkdirat", "fsi"}, {"rmdir", "s"},
    {"mknod", "sii"}, {"mknodat", "fsii"}, {"chmod", "si"}, {"fchmod", "fi"}, {"fchmodat", "fsi"}, {"fchmodat2", "fsii"},
    {"chown", "sii"}, {"lchown", "sii"}, {"fchown", "fii"}, {"fchownat", "fsiii"}, {"utimensat", "fspi"}, {"utimes", "sp"},
    {"setxattr", "sspni"}, {"fsetxattr", "fspni"}, {"getxattr", "sspn"}, {"fgetxattr", "fspn"}, {"listxattr", "spn"}, {"flistxattr", "fpn"},
    {"removexattr", "ss"}, {"cachestat", "fppi"}, {"mmap", "aniifo"}, {"munmap", "an"}, {"mprotect", "ani"}, {"mremap", "annia"},
    {"madvise", "ani"}, {"msync", "ani"}, {"mincore", "anp"}, {"mlock", "an"}, {"mlock2", "ani"}, {"munlock", "an"}, {"mseal", "ani"},
    {"pkey_mprotect", "anii"}, {"memfd_create", "si"}, {"shmget", "ini"}, {"shmat", "iai"}, {"shmctl", "iip"}, {"semget", "iii"},
    {"semop", "ipi"}, {"semctl", "iiip"}, {"msgget", "ii"}, {"msgsnd", "ipni"}, {"msgrcv", "ipnii"}, {"msgctl", "iip"}, {"mq_open", "siip"},
    {"mq_timedsend", "fpnip"}, {"mq_timedreceive", "fpnpp"}, {"mq_notify", "fp"}, {"kill", "dg"}, {"tkill", "dg"}, {"tgkill", "ddg"},
    {"pidfd_open", "di"}, {"pidfd_send_signal", "fgpi"}, {"rt_sigqueueinfo", "dgp"}, {"rt_tgsigqueueinfo", "ddgp"}, {"rt_sigaction", "gppn"},
    {"rt_sigprocmask", "ippn"}, {"signalfd4", "fpni"}, {"signalfd", "fpn"}, {"prctl", "rpppp"}, {"futex", "piippi"},
    {"futex_waitv", "piipi"}, {"futex_wake", "piii"}, {"futex_wait", "piiipi"}, {"futex_requeue", "piii"}, {"set_robust_list", "pn"},
    {"wait4", "dpip"}, {"waitid", "idpip"}, {"execve", "ppp"}, {"execveat", "fpppi"}, {"setpgid", "dd"}, {"getpgid", "d"}, {"getsid", "d"},
    {"sched_setaffinity", "dnp"}, {"sched_setscheduler", "dip"}, {"sched_setparam", "dp"}, {"sched_setattr", "dpi"}, {"setpriority", "idi"},
    {"ioprio_set", "idi"}, {"prlimit64", "dipp"}, {"setrlimit", "ip"}, {"personality", "i"}, {"capset", "pp"}, {"capget", "pp"},
    {"landlock_create_ruleset", "pni"}, {"landlock_add_rule", "fipi"}, {"landlock_restrict_self", "fi"}, {"timer_create", "ipp"},
    {"timer_settime", "iipp"}, {"timer_delete", "i"}, {"timer_gettime", "ip"}, {"timerfd_create", "ii"}, {"timerfd_settime", "fipp"},
    {"setitimer", "ipp"}, {"clock_nanosleep", "iipp"}, {"nanosleep", "pp"}, {"poll", "pii"}, {"ppoll", "pippn"}, {"select", "ipppp"},
    {"pselect6", "ippppp"}, {"epoll_create1", "i"}, {"epoll_ctl", "fifp"}, {"epoll_wait", "fpii"}, {"epoll_pwait", "fpiipn"},
    {"epoll_pwait2", "fpippn"}, {"eventfd2", "ii"}, {"socket", "iii"}, {"socketpair", "iiip"}, {"bind", "fpi"}, {"listen", "fi"},
    {"accept", "fpp"}, {"accept4", "fppi"}, {"connect", "fpi"}, {"sendto", "fpnipi"}, {"recvfrom", "fpnipp"}, {"sendmsg", "fpi"},
    {"recvmsg", "fpi"}, {"sendmmsg", "fpii"}, {"recvmmsg", "fpiip"}, {"getsockopt", "flrpp"}, {"setsockopt", "flrpi"}, {"shutdown", "fi"},
    {"ioctl", "frp"}, {"fcntl", "frp"}, {"membarrier", "iii"}, {"getrandom", "pni"}, {"setgroups", "ip"}, {"arch_prctl", "rp"},
};
/* End the caller at once, or make processes; those are made in a way of their own. */
static const char *SKIPPED[] = {"exit", "exit_group", "rt_sigreturn", "restart_syscall", "vfork", "fork", "clone", "seccomp"};

struct shared {
    unsigned long made, calls[MAX_CALLS], fine[MAX_CALLS];
};
static struct call table[MAX_CALLS];
static struct shared *seen;
static uint64_t state;
static unsigned char *scratch;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dULL;
}
static uint64_t below(uint64_t most) { return next() % most; }

static long odd_number(void) {
    static const long odd[] = {0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 255, 256, 4095, 4096, 4097, 65535, 65536, 1 << 20, 0x7fffffff, 0x80000000L,
                               0xffffffffL, -1, -2, -4096, 1L << 47, 0x7fffffffffffffffL, (long)0x8000000000000000UL};
    switch (below(4)) {
    case 0: return odd[below(sizeof odd / sizeof *odd)];
    case 1: return (long)below(40);
    case 2: return 1L << below(33) | 1L << below(33);
    default: return (long)next() >> below(60);
    }
}

static long request(const char *name) {
    static const long types[] = {'T', 'f', 'X', 'r', 'v', 'S', 'R', 0x89, 0x12, 0x15, 0x94, 0xb7};
    if (!strcmp(name, "ioctl"))
        return below(3) ? (long)(types[below(12)] << 8 | below(128) | below(4) << 30 | (below(2) ? below(256) << 16 : 0)) : odd_number();
    if (!strcmp(name, "fcntl"))
        return below(3) ? (long)(below(2) ? below(44) : 1024 + below(20)) : odd_number();
    if (!strcmp(name, "arch_prctl"))
        return 0x1000 + (long)below(0x30);
    return below(4) ? (long)below(120) : odd_number();
}

static long argument(const char *name, char kind) {
    static const char *paths[] = {"/tmp/a", "/tmp/b", "/tmp/d", "/tmp/d/c", "a", ".", "..", "/", "/proc/self/fd/3", "/proc/self/mem", "/dev/null",
                                  "/dev/zero", "/dev/shm/x", "/usr/bin/true", "", "/proc/self/maps", "/proc/self/oom_score_adj", "user.x",
                                  "system.posix_acl_access", "/tmp/l"};
    static const long levels[] = {0, 1, 6, 17, 41, 58, 132, 255, 263, 270, 284};
    switch (kind) {
    case 'f': return below(12) ? (long)below(40) : (below(2) ? -100 : odd_number());
    case 'p': return below(10) ? (long)(scratch + below(SCRATCH - 4096) / 8 * 8) : (below(2) ? 0 : odd_number());
    case 's': return below(20) ? (long)paths[below(sizeof paths / sizeof *paths)] : (long)(scratch + below(SCRATCH - 64));
    case 'n': return below(3) ? (long)below(8192) : odd_number();
    case 'd': return below(3) ? getpid() : (below(2) ? 0 : 1000000 + (long)below(100));
    case 'g': return below(3) ? (long)(below(2) ? 0 : SIGRTMIN + below(20)) : (long)below(70);
    case 'a': return below(8) ? (long)(scratch + SCRATCH + (below(32) << 12)) : odd_number();
    case 'o': return below(2) ? (long)below(1 << 20) : odd_number();
    case 'r': return request(name);
    case 'l': return levels[below(11)];
    default: return odd_number();
    }
}

/* Whether the call would attach a filter, signal others, or write to disk for the whole machine too often. */
static int is_left_out(const char *name, const long *args) {
    int option = (int)args[2];
    if (!strcmp(name, "setsockopt"))
        return option == 26 || (option >= 50 && option <= 52);
    if (!strcmp(name, "prctl"))
        return (int)args[0] == 22;
    if (!strcmp(name, "kill"))
        return (int)args[0] == -1 || ((int)args[0] > 1 && (int)args[0] != getpid());
    if (!strcmp(name, "sync") || !strcmp(name, "syncfs"))
        return below(20) != 0;
    return 0;
}

/* Words that are pointers, small numbers, or anything. */
static void refill(int words) {
    for (int i = 0; i < words; i++) {
        uint64_t *word = (uint64_t *)(scratch + below(SCRATCH / 8) * 8);
        switch (below(4)) {
        case 0: *word = (uint64_t)(scratch + below(SCRATCH)); break;
        case 1: *word = below(64); break;
        case 2: *word = (uint64_t)odd_number(); break;
        default: *word = next();
        }
    }
}

static void interrupted(int number) { (void)number; }

static void open_some(void) {
    int ends[2], null = open("/dev/null", O_RDWR);
    /* What it writes is not part of the answer. */
    for (int stream = 0; stream < 3; stream++)
        dup2(null, stream);
    open("/tmp/a", O_RDWR | O_CREAT, 0600);
    mkdir("/tmp/d", 0700);
    symlink("/tmp/a", "/tmp/l");
    open("/tmp/d", O_RDONLY | O_DIRECTORY);
    if (pipe(ends)) {}
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {}
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) {}
    socket(AF_INET, SOCK_STREAM, 0);
    socket(AF_INET, SOCK_DGRAM, 0);
    socket(AF_INET6, SOCK_DGRAM, 0);
    socket(AF_INET6, SOCK_STREAM, 0);
    eventfd(0, 0);
    epoll_create1(0);
    timerfd_create(CLOCK_MONOTONIC, 0);
    sigset_t none;
    sigemptyset(&none);
    signalfd(-1, &none, 0);
    syscall(SYS_memfd_create, "x", 2);
    syscall(SYS_pidfd_open, getpid(), 0);
    open("/dev/null", O_RDWR);
    open("/dev/zero", O_RDWR);
    open("/proc/self/status", O_RDONLY);
    open("/usr/bin", O_RDONLY | O_DIRECTORY);
}

static void sequence(int count) {
    setsid();
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = interrupted};
    open_some();
    refill(SCRATCH / 16);
    for (int made = 0; made < SEQUENCE; made++) {
        int index = (int)below((uint64_t)count);
        const struct call *call = &table[index];
        long args[6];
        for (int i = 0; i < 6; i++)
            args[i] = argument(call->name, call->kinds[i]);
        if (is_left_out(call->name, args))
            continue;
        refill(8);
        sigaction(SIGALRM, &action, NULL);
        struct itimerval soon = {{0, 5000}, {0, 5000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        seen->calls[index]++;
        seen->made++;
        if (syscall(call->number, args[0], args[1], args[2], args[3], args[4], args[5]) != -1)
            seen->fine[index]++;
    }
    /* A process of every kind of flags that asks for no memory in common; it ends at once. */
    long flags = odd_number() & ~(CLONE_VM | CLONE_VFORK | CLONE_THREAD);
    if (syscall(SYS_clone, flags, 0, scratch, scratch, 0) == 0)
        _exit(0);
    _exit(0);
}

static const char *kinds_of(const char *name) {
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (!strcmp(KINDS[i].name, name)) {
            /* What is not an argument is anything. */
            char *all = malloc(7);
            snprintf(all, 7, "%sxxxxxx", KINDS[i].kinds);
            return all;
        }
    return "xxxxxx";
}

static int read_table(void) {
    int count = 0;
    while (count < MAX_CALLS && scanf("%ld %31s", &table[count].number, table[count].name) == 2) {
        int skipped = 0;
        for (unsigned i = 0; i < sizeof SKIPPED / sizeof *SKIPPED; i++)
            skipped |= !strcmp(SKIPPED[i], table[count].name);
        table[count].kinds = kinds_of(table[count].name);
        count += !skipped;
    }
    return count;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    double end = now() + atof(argv[2]);
    int count = read_table();
    /* Far below everything else, so that no length that is too large reaches it. */
    seen = mmap((void *)0x10000000000, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scratch = mmap(NULL, SCRATCH + (64 << 12), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct { pid_t pid; double end; } slots[SLOTS] = {0};
    unsigned long children = 0, killed = 0, refused = 0;
    int running = 0;
    while (count && (now() < end || running)) {
        running = 0;
        for (int i = 0; i < SLOTS; i++) {
            if (slots[i].pid && waitpid(slots[i].pid, NULL, WNOHANG) != 0)
                slots[i].pid = 0;
            if (slots[i].pid && now() > slots[i].end) {
                kill(slots[i].pid, SIGKILL);
                killed++;
                slots[i].end += 60;
            }
            if (!slots[i].pid && now() < end) {
                state = seed * 1000003 + children * 7919 + 88172645463325252ULL;
                pid_t child = fork();
                if (child == 0)
                    sequence(count);
                refused += child < 0;
                children += child > 0;
                slots[i].pid = child > 0 ? child : 0;
                slots[i].end = now() + PATIENCE;
            }
            running += slots[i].pid != 0;
        }
        usleep(500);
    }
    unsigned long distinct = 0, succeeded = 0;
    for (int i = 0; i < count; i++) {
        distinct += seen->calls[i] > 0;
        succeeded += seen->fine[i] > 0;
    }
    printf("calls: %lu\ndistinct: %lu\nsucceeded: %lu\nchildren: %lu\nkilled: %lu\nrefused: %lu\ntable: %d\n", seen->made, distinct, succeeded,
           children, killed, refused, count);
    return 0;
}
