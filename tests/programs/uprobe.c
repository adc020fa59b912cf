/* Foreign breakpoints: uprobe kernel|imitated PID FILE OFFSET ADDRESS TIMES.
 *
 * TIMES times it puts a breakpoint on an instruction of a process over which a jump is patched. It removes the
 * breakpoint when the rest of the jump has gone, and then waits for the jump. With 0 times it puts the breakpoint
 * there, whatever is there, and removes it when a line comes. `kernel`: by a uprobe. `imitated`: it writes the kernel's
 * bytes into the process's memory. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static int memory, file, is_kernel;
static pid_t process;
static const char *path;
static unsigned long offset, address;
static unsigned char original[5];

static void read_text(unsigned char bytes[5])
{
	CHECK(pread(memory, bytes, 5, (off_t)address) == 5);
}

static unsigned type_of_uprobes(void)
{
	unsigned type = 0;
	FILE *number = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	if (!number)
		return 0;
	if (fscanf(number, "%u", &type) != 1)
		type = 0;
	fclose(number);
	return type;
}

/* Yields the number that `disable` takes. */
static int enable(void)
{
	if (!is_kernel) {
		unsigned char breakpoint = 0xcc;
		CHECK(pwrite(memory, &breakpoint, 1, (off_t)address) == 1);
		return 0;
	}
	struct perf_event_attr attributes = { .size = sizeof attributes, .type = type_of_uprobes() };
	attributes.config1 = (unsigned long)path;
	attributes.config2 = offset;
	int event = attributes.type ? (int)syscall(SYS_perf_event_open, &attributes, process, -1, -1, 0) : -1;
	if (event < 0) {
		printf("no uprobes: %d\n", errno);
		exit(0);
	}
	return event;
}

static void disable(int event)
{
	if (is_kernel)
		close(event);
	else
		CHECK(pwrite(memory, original, 1, (off_t)address) == 1);
}

/* For at most ten minutes. */
static void wait_for_text(const unsigned char *first, int others_are_original)
{
	for (int turn = 0; turn < 600000; turn++) {
		unsigned char bytes[5];
		read_text(bytes);
		int others = memcmp(bytes + 1, original + 1, 4) == 0;
		if (bytes[0] == *first && others == others_are_original)
			return;
		usleep(1000);
	}
	CHECK(!"the text stays as it is");
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc == 7);
	const unsigned char breakpoint = 0xcc, jump = 0xe9;
	char name[64];
	is_kernel = strcmp(argv[1], "kernel") == 0;
	process = (pid_t)atoi(argv[2]);
	path = argv[3];
	offset = strtoul(argv[4], NULL, 0);
	address = strtoul(argv[5], NULL, 0);
	long times = atol(argv[6]);
	snprintf(name, sizeof name, "/proc/%d/mem", (int)process);
	memory = open(name, O_RDWR);
	file = open(path, O_RDONLY);
	CHECK(memory >= 0 && file >= 0 && pread(file, original, 5, (off_t)offset) == 5);
	for (long time = 0; time < times; time++) {
		wait_for_text(&jump, 0);
		int event = enable();
		wait_for_text(&breakpoint, 1);
		disable(event);
	}
	if (times == 0) {
		int event = enable();
		wait_for_text(&breakpoint, 1);
		printf("enabled\n");
		wait_for_line();
		unsigned char bytes[5];
		read_text(bytes);
		CHECK(bytes[0] == breakpoint && memcmp(bytes + 1, original + 1, 4) == 0);
		disable(event);
	} else {
		wait_for_text(&jump, 0);
	}
	printf("OK\n");
	return 0;
}
