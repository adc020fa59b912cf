// sharing clone: makes a child that shares its memory and is not a thread. sharing spawn: makes children by vfork all
// the time, until the end of its input.
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static _Atomic int ends;

__attribute__((noipa)) static long called(long value) {
    return value * 3 + 1;
}

static int child(void *nothing) {
    (void)nothing;
    long value = 1;
    while (!ends)
        value = called(value);
    return value == 0;
}

int main(int argc, char **argv) {
    static _Alignas(16) char stack[65536];
    if (argc > 1 && strcmp(argv[1], "clone") == 0) {
        pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_FS | SIGCHLD, NULL);
        printf("ready %d\n", pid);
        fflush(stdout);
        long value = 1;
        char byte;
        while (read(0, &byte, 1) < 0)
            value = called(value);
        ends = 1;
        int status = -1;
        waitpid(pid, &status, 0);
        printf("child %d\n", status);
        fflush(stdout);
        return read(0, &byte, 1) == 1 ? 1 : 0;
    }
    puts("ready 0");
    fflush(stdout);
    struct pollfd input = {0, 0, 0};
    for (int index = 0; index < 300 || poll(&input, 1, 0) == 0; index++) {
        pid_t pid;
        char *words[] = {"/bin/true", NULL};
        if (posix_spawn(&pid, words[0], NULL, NULL, words, environ) != 0)
            return 1;
        waitpid(pid, NULL, 0);
    }
    puts("done");
    return 0;
}
