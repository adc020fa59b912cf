/* Counts its own calls. */
#include <nanoprobe.h>
#include <stdio.h>

static int before(struct np_probe *probe, struct np_regs *regs)
{
        (void)probe;
        (void)regs;
        return 0;
}

__attribute__((noinline)) static long twice(long value)
{
        __asm__ volatile("" ::: "memory");
        return 2 * value;
}

int main(void)
{
        struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)twice, .pre_handler = before };
        int error = np_register_probe(&probe);
        if (error)
                return fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
        long sum = 0;
        for (long value = 0; value < 1000; value++)
                sum += twice(value);
        printf("%ld %lu\n", sum, np_probe_hits(&probe));
        return np_unregister_probe(&probe);
}
