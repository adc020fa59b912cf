/* Says that it is ready, and calls a function until the file /stop appears. Then says whether the function's bytes
   are unchanged. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) long served(long value)
{
        __asm__ volatile("" ::: "memory");
        return 3 * value;
}

int main(void)
{
        char before[16];
        memcpy(before, (const void *)served, sizeof(before));
        puts("ready");
        fflush(stdout);
        long sum = 0;
        for (long value = 0; access("/stop", F_OK); value++) {
                sum += served(value);
                usleep(1000);
        }
        puts(memcmp(before, (const void *)served, sizeof(before)) ? "changed" : "as before");
        return sum < 0;
}
