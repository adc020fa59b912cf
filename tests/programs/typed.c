/* A C program for the types of D: each function always gets the same arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBED __attribute__((noipa, noinline))

enum color { RED = 3, GREEN = -2, BLUE = 700 };

typedef struct {
    int x;
    short y;
} point_t;

struct address {
    unsigned char octets[4];
    unsigned short port;
};

union value {
    long number;
    double real;
    char text[8];
};

struct request {
    struct request *next;
    const char *path;
    enum color color;
    unsigned kind : 3;
    int level : 7;
    unsigned long wide : 40;
    enum color hue : 11;
    struct address server;
    struct {
        int first;
        union {
            int second;
            unsigned char bytes[4];
        };
    };
    union value value;
    double ratio;
    int (*compare)(const void *, const void *);
    point_t corners[3];
    int rest[];
};

struct pair {
    int a;
    int b;
    long c;
};

struct large {
    long words[5];
    char last;
};

struct opaque;

long counter = 41;
static volatile enum color shade = BLUE;
struct request *head;
__thread int own = 5;
static struct large table = {{1, 2, 3, 4, 5}, 'z'};

static struct {
    struct request request;
    int rest[2];
} storage;

PROBED long serve(struct request *request, const char *name, short count, unsigned char flag) {
    counter++;
    return request->server.port + (long)strlen(name) + count + flag;
}

PROBED enum color paint(enum color color, double weight, long after) {
    return weight > 1 ? BLUE : after ? RED : color;
}

PROBED struct pair both(struct pair pair, char letter) {
    pair.a += letter;
    pair.c *= 2;
    return pair;
}

PROBED struct large many(int one, struct large large, long a, long b, long c, long d, long e, short tail) {
    large.words[0] = one + a + b + c + d + e;
    large.last = (char)tail;
    return large;
}

PROBED struct request *follow(struct opaque *opaque, point_t point, unsigned long *out) {
    *out = (unsigned long)point.x;
    return opaque ? head : &storage.request;
}

static inline int twice(int number) {
    counter += number;
    return number * 2;
}

PROBED int lines(int number) {
    int sum = twice(number);
    sum += twice(sum + 1); /* the line of the tests */
    return sum;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    struct request *request = &storage.request;
    unsigned long out;
    request->next = request;
    request->path = "/index.html";
    request->color = GREEN;
    request->kind = 5;
    request->level = -9;
    request->wide = 0xabcdef1234;
    request->hue = GREEN;
    request->server = (struct address){{10, 0, 0, 7}, 8080};
    request->first = 11;
    request->second = 22;
    request->value.number = 1234567890123;
    request->ratio = 0.75;
    request->corners[2] = (point_t){-4, 9};
    head = request;
    for (int round = 0; round < rounds; round++) {
        serve(request, "alice", -3, 200);
        paint(RED, 2.5, 77);
        both((struct pair){1, 2, 3}, 'c');
        many(6, table, 1, 2, 3, 4, 5, -8);
        follow(NULL, (point_t){1, 2}, &out);
        lines(round);
        usleep(1000);
    }
    printf("%ld %d %d\nOK\n", counter, shade, own);
    return 0;
}
