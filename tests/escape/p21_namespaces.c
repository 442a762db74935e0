// P21: new namespaces, in which a user is root. Each way must fail: with EPERM, or ENOSYS for clone3,
// whose flags a filter cannot read.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct { const char *name; unsigned long flag; } kinds[] = {
    {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},   {"pid", CLONE_NEWPID},
    {"net", CLONE_NEWNET},   {"ipc", CLONE_NEWIPC},  {"uts", CLONE_NEWUTS},
    {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80},
};

static void tell(const char *how, const char *what, long result) {
    int error = errno;
    printf("%s %s: %s\n", how, what,
           result >= 0 ? "ok" : error == EPERM ? "EPERM" : error == ENOSYS ? "ENOSYS" : "another error");
    fflush(stdout);
}

// In a child, so that what succeeds does not change the next attempt.
static long in_child(long (*attempt)(unsigned long), unsigned long flag) {
    int status = -1, child = fork();
    if (child == 0)
        _exit(attempt(flag) < 0 ? errno : 0);
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return status ? -1 : 0;
}

static long try_unshare(unsigned long flag) { return unshare((int)flag); }

static long try_clone(unsigned long flag) {
    // The upper half must not matter: the kernel ignores it.
    long child = syscall(SYS_clone, flag | SIGCHLD | 1UL << 40, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}

static long try_clone3(unsigned long flag) {
    unsigned long args[8] = {flag, 0, 0, 0, SIGCHLD};
    long child = syscall(SYS_clone3, args, sizeof args);
    if (child == 0)
        _exit(0);
    return child;
}

int main(void) {
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tell("unshare", kinds[i].name, in_child(try_unshare, kinds[i].flag));
        tell("clone", kinds[i].name, in_child(try_clone, kinds[i].flag));
        tell("clone3", kinds[i].name, in_child(try_clone3, kinds[i].flag));
    }
    tell("setns", "own", syscall(SYS_setns, 0, 0));
}
