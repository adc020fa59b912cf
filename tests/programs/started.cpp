/* Threads of std::thread: of a function, of one with arguments, of a method, of a lambda. */
#include <thread>
#include "check.h"

extern "C" PROBED void plain() { __asm__ volatile(""); }
extern "C" PROBED void with_arguments(int first, long second) { __asm__ volatile("" : : "r"(first), "r"(second)); }
struct Server {
	PROBED void serve(int port) { __asm__ volatile("" : : "r"(port)); }
};
PROBED void starts_lambda()
{
	std::thread([](int) { __asm__ volatile(""); }, 5).join();
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	Server server;
	std::thread(plain).join();
	std::thread(with_arguments, 1, 2L).join();
	std::thread(&Server::serve, &server, 80).join();
	starts_lambda();
	return finish(MIX_START);
}
