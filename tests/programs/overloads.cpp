// Functions of C++ with readable names: two functions that differ only in their parameters, and their caller.
#include <cstdio>
#include <cstdlib>

#define PROBED __attribute__((noipa, noinline))

struct Order {
    int count;
};

PROBED int price(int count) { return count * 2; }
PROBED int price(double rate) { return static_cast<int>(rate * 2); }
PROBED int process_order(Order *order) { return price(order->count) + price(1.5) + 1; }

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    Order order{3};
    int sum = 0;
    for (int round = 0; round < rounds; round++)
        sum += process_order(&order);
    puts(sum == rounds * 10 ? "OK" : "FAILED");
    return 0;
}
