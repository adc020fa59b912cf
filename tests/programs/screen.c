/* For tests of the screen. Each line of input has two numbers: how often to call `often`, and how often `rare`. The
 * program answers with `did`. With `rare` it calls `say`, whose text has escape sequences for a terminal. */
#include "check.h"

static uint64_t checksum = MIX_START;

PROBED void often(long size)
{
	checksum = mix(checksum, (uint64_t)size);
}

PROBED void rare(long size)
{
	checksum = mix(checksum, (uint64_t)size + 1);
}

PROBED void say(const char *text)
{
	checksum = mix(checksum, (uint64_t)strlen(text));
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	printf("ready\n");
	char line[100];
	while (fgets(line, sizeof(line), stdin) != NULL) {
		long many = 0, few = 0;
		CHECK(sscanf(line, "%ld %ld", &many, &few) == 2);
		for (long i = 0; i < many; i++)
			often(64);
		for (long i = 0; i < few; i++) {
			rare(5000);
			say("\033[2J\033[31mred\007");
		}
		printf("did %ld %ld\n", many, few);
	}
	printf("OK\n");
	return 0;
}
