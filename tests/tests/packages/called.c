/* Calls a function 100,000 times. */
#include <stdio.h>

__attribute__((noinline)) long called(long value)
{
        __asm__ volatile("" ::: "memory");
        return 3 * value;
}

int main(void)
{
        long sum = 0;
        for (long value = 0; value < 100000; value++)
                sum += called(value);
        printf("%ld\n", sum);
        return 0;
}
