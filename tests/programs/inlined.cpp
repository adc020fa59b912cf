// Inlined copies of C++: a member function, a template, both in a namespace.
#include <cstdio>
#include <cstdlib>

#define PROBED __attribute__((noipa, noinline))
#define INLINED inline __attribute__((always_inline))

static volatile long total;

namespace shop {

struct Cart {
    long items = 0;
    INLINED void put(int count) {
        total = count; // line: put
        items += count;
    }
};

template <typename T> INLINED long price(T amount) { // line: price
    total = static_cast<long>(amount);
    return total;
}

} // namespace shop

PROBED long buy(shop::Cart &cart, int count) {
    cart.put(count);
    return shop::price<long>(count) + shop::price<short>(static_cast<short>(count));
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 5, sum = 0;
    shop::Cart cart;
    for (long round = 0; round < rounds; round++) {
        sum += buy(cart, 7);
    }
    printf("%ld %ld\nOK\n", sum, cart.items);
    return 0;
}
