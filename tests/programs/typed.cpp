// A C++ program for the types of D: a reference, a class with bases, a namespace, an object at an address.
#include <cstdio>
#include <cstdlib>
#include <string>

#define PROBED __attribute__((noipa, noinline))

namespace shapes {

enum class Kind : unsigned char { Round = 1, Flat = 200 };

struct Base {
    long id = 77;
    virtual ~Base() {}
};

struct Weighed {
    int weight = -5;
};

class Circle : public Base, public Weighed {
public:
    explicit Circle(int radius) : radius(radius) {}
    PROBED int area(int factor) const { return radius * radius * factor; }

private:
    int radius;
    Kind kind = Kind::Flat;
};

PROBED int measure(const Circle &circle, std::string text, int last) {
    return circle.area(2) + static_cast<int>(text.size()) + last;
}

} // namespace shapes

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    long sum = 0;
    shapes::Circle circle(3);
    for (int round = 0; round < rounds; round++) {
        sum += shapes::measure(circle, std::string("four"), round);
    }
    printf("%ld\nOK\n", sum);
    return 0;
}
