/* A program that pretends to have been traced: it makes an arena that claims many sites, as a dead tracer would leave
 * it.
 *
 *     faked [--wait] MODE SITES
 *
 * MODE: "true": every site is patched and must be restored; "sparse": the table is a hole of the file; "beyond": the
 * table claims to be longer than the file. */
#include <sys/mman.h>
#include "check.h"

struct site {
	uint64_t address;
	uint32_t length, tactic;
	uint8_t original[16], patched[16];
};

struct control {
	uint64_t magic;
	uint32_t version, control_bytes;
	uint64_t arena_address, arena_bytes;
	uint32_t tracer_pid, state, site_count, site_capacity;
	uint64_t sites_offset;
	uint32_t region_count, region_capacity;
	uint64_t regions_offset;
};

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc > 2);
	const char *mode = argv[1];
	size_t sites = (size_t)number(argc, argv, 2, 0), bytes = 4096 + sites * sizeof(struct site);
	bytes = (bytes + 4095) & ~4095UL;
	int file = memfd_create("nanoprobe-0123456789abcdef", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
	char *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(arena != MAP_FAILED);
	close(file);
	char *text = mmap(NULL, sites * 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(text != MAP_FAILED);
	struct control *control = (struct control *)arena;
	struct site *table = (struct site *)(arena + 4096);
	if (strcmp(mode, "true") == 0) {
		memset(text, 0x90, sites * 16);
		for (size_t index = 0; index < sites; index++) {
			/* The sites are not in the order of their addresses. */
			size_t place = (index * 7919) % sites;
			table[index].address = (uint64_t)(text + place * 16);
			table[index].length = 16;
			memset(table[index].patched, 0x90, 16);
			memset(table[index].original, 0x91, 16);
		}
	}
	*control = (struct control){
		.magic = 0x424f52504f4e414eUL,
		.version = 1,
		.control_bytes = 4096,
		.arena_address = (uint64_t)arena,
		.arena_bytes = strcmp(mode, "beyond") == 0 ? UINT64_MAX : bytes,
		.tracer_pid = 1,
		.state = 1,
		.site_count = strcmp(mode, "beyond") == 0 ? UINT32_MAX : (uint32_t)sites,
		.site_capacity = UINT32_MAX,
		.sites_offset = 4096,
		.regions_offset = 2048,
	};
	/* target_pid follows: if it were zero, it would be another process's, as in a forked child. */
	wait_for_go();
	long put_back = 0;
	for (size_t byte = 0; byte < sites * 16; byte++)
		put_back += text[byte] == (char)0x91;
	printf("restored %ld\nOK\n", put_back);
	return 0;
}
