// Coroutines with small stacks side by side in one array, run by two threads. Each coroutine fills its stack almost
// to the bottom, and checks the contents after each switch. So below each stack pointer lies the memory of another
// coroutine.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { COROUTINES = 64, STACK = 1024, WORDS = 80 };

static _Alignas(4096) uint64_t stacks[COROUTINES][STACK / 8];
static void *pointers[COROUTINES];
static _Thread_local void *own_pointer;
static _Thread_local int current;
static _Atomic long damage, rounds;
static _Atomic int stop;

// Pushes the registers that a call preserves, and changes stacks.
__attribute__((naked, noinline)) static void change(void **from, void *to) {
    (void)from;
    (void)to;
    __asm__("push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret");
}

static uint64_t next(uint64_t value) {
    return value * 6364136223846793005u + 1442695040888963407u;
}

__attribute__((noreturn)) static void body(void) {
    volatile uint64_t words[WORDS];
    uint64_t seed = (uint64_t)current + 1;
    for (;;) {
        uint64_t value = seed;
        for (int index = 0; index < WORDS; index++)
            words[index] = value = next(value);
        // Meanwhile another thread's coroutines change their stacks.
        for (int spin = 0; spin < 50; spin++) {
            value = seed;
            for (int index = 0; index < WORDS; index++) {
                value = next(value);
                if (words[index] != value) {
                    damage++;
                    words[index] = value;
                }
            }
        }
        change(&pointers[current], own_pointer);
        value = seed;
        for (int index = 0; index < WORDS; index++) {
            value = next(value);
            if (words[index] != value)
                damage++;
        }
        seed = next(seed);
    }
}

// Runs every second coroutine in turn.
static void *run(void *first) {
    for (int index = (int)(intptr_t)first; index < COROUTINES; index += 2) {
        uint64_t *top = stacks[index] + STACK / 8;
        top[-1] = 0;
        top[-2] = (uint64_t)(uintptr_t)body;
        memset(top - 8, 0, 6 * 8);
        pointers[index] = top - 8;
    }
    while (!stop) {
        for (current = (int)(intptr_t)first; current < COROUTINES; current += 2)
            change(&own_pointer, pointers[current]);
        rounds++;
    }
    return NULL;
}

static void *listen(void *nothing) {
    char byte;
    if (read(0, &byte, 1) < 0)
        abort();
    stop = 1;
    return nothing;
}

int main(void) {
    pthread_t other, listener;
    if (pthread_create(&other, NULL, run, (void *)1) != 0 || pthread_create(&listener, NULL, listen, NULL) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    run((void *)0);
    pthread_join(other, NULL);
    pthread_join(listener, NULL);
    printf("damage=%ld %s\n", (long)damage, rounds > 2 ? "ran" : "idle");
    return 0;
}
