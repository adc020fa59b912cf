/* Calls a function with numbers of every width and sign. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBED __attribute__((noipa, noinline))

static volatile long sum;

PROBED void numbers(signed char byte, short half, int whole, long wide, unsigned char ubyte, unsigned short uhalf,
                    unsigned uwhole, unsigned long uwide) {
    sum += byte + half + whole + wide + ubyte + uhalf + (long)uwhole + (long)uwide;
}

int main(void) {
    numbers(-7, -7, -7, -7, 249, 65529, 4000000000u, 18446744073709551609ul);
    numbers(100, 30000, 2000000000, 9000000000000000000, 100, 30000, 2000000000u, 9000000000000000000ul);
    numbers(0, 0, 0, 0, 0, 0, 0, 0);
    puts("OK");
    return 0;
}
