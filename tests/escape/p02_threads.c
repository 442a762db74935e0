// P02: starts N threads that stay. Long before ten thousand, starting one must fail with EAGAIN.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *stay(void *unused) {
    pause();
    return unused;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 10000, started = 0, error = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (pthread_t thread; started < wanted; started++)
        if ((error = pthread_create(&thread, &small, stay, NULL)))
            break;
    printf("threads: %d\nstopped by: %s\n", started, error == EAGAIN ? "EAGAIN" : error ? "another error" : "none");
    fflush(stdout);
    _exit(0);
}
