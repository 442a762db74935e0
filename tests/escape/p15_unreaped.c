// P15: leaves children unreaped, N of them. `orphans` have lost their parent, and init must reap every
// one. `own` are still this program's, and fill its own limit with EAGAIN.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Orphans are zombies for a moment: a refusal is final only if it lasts.
static int fork_patiently(int patience) {
    for (;;) {
        int child = fork();
        if (child >= 0 || errno != EAGAIN || patience-- == 0)
            return child;
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    int orphans = !strcmp(argv[1], "orphans"), wanted = atoi(argv[argc - 1]), made = 0;
    for (; made < wanted; made++) {
        int child = fork_patiently(orphans ? 1000 : 20);
        if (child < 0)
            break;
        if (child == 0)
            _exit(orphans ? fork_patiently(1000) < 0 : 0);
        if (orphans) {
            int status;
            waitpid(child, &status, 0);
            if (status)
                break;
        }
    }
    printf("made: %d\n", made);
}
