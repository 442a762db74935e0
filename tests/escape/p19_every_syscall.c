// P19: makes every call that is not on the allowlist, each in a child of its own with zeroes for
// arguments. Standard input holds the table: a number and the errno it must fail with on each line.
// Calls in the form of another architecture must end the process.
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { X32_BIT = 0x40000000, I386_GETPID = 20, AS_I386 = -1 };

static int attempt(long number) {
    if (number == AS_I386) {
        long result = I386_GETPID;
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
        return 0;
    }
    return syscall(number, 0, 0, 0, 0, 0, 0) < 0 ? errno : 0;
}

// The errno, or 1000 and the signal that ended the child.
static int outcome(long number) {
    int status, child = fork();
    if (child == 0) {
        alarm(2);
        _exit(attempt(number));
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(void) {
    long number;
    int wanted, checked = 0, wrong = 0;
    while (scanf("%ld %d", &number, &wanted) == 2) {
        int got = outcome(number);
        checked++;
        if (got != wanted && ++wrong)
            printf("call %ld: %d, not %d\n", number, got, wanted);
    }
    printf("x32: %d\n", outcome(X32_BIT | SYS_getpid));
    printf("int80: %d\n", outcome(AS_I386));
    printf("checked: %d\nwrong: %d\n", checked, wrong);
}
