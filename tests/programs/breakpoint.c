/* A function that begins with the program's own breakpoint, and continues after it. */
#include <signal.h>
#include <stdio.h>

static volatile int seen;

static void trapped(int number) { seen += number == SIGTRAP; }

__asm__(".globl own_breakpoint\n.type own_breakpoint, @function\nown_breakpoint:\n\tint3\n\tret\n"
        ".size own_breakpoint, . - own_breakpoint");
void own_breakpoint(void);

int main(void) {
    signal(SIGTRAP, trapped);
    for (int i = 0; i < 3; i++) own_breakpoint();
    puts(seen == 3 ? "OK" : "lost");
    return seen != 3;
}
