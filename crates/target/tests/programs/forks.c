/* Forks a child. Both live until they are killed, or for five minutes. */
#include <unistd.h>

int main(void)
{
	fork();
	alarm(300);
	for (;;)
		pause();
}
