// A thread at the idle policy, which hardly ever gets a processor while other threads want one.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    const struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) != 1)
        return 1;
    puts("done");
    return 0;
}
