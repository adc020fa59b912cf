/* A known list of leaks, by every form of C++'s and C's allocation. Memory that is allocated before the wait is no
 * leak. */
#include <new>
#include "check.h"

static void *kept[400];
static int count;

template <typename T> static T *keep(T *block)
{
	if (block == nullptr || count == 400)
		abort();
	kept[count++] = (void *)block;
	return block;
}

struct Shape { long words[5]; };

extern "C" PROBED void leak_new() { keep(new Shape()); }
extern "C" PROBED void leak_array(long bytes) { keep(new char[(size_t)bytes]); }
extern "C" PROBED void leak_nothrow() { keep(new (std::nothrow) char[33]); }
extern "C" PROBED void leak_aligned_new() { keep(::operator new(128, std::align_val_t(64))); }
extern "C" PROBED void leak_calloc() { keep(calloc(3, 20)); }
extern "C" PROBED void leak_realloc() { keep(realloc(malloc(10), 90)); }
extern "C" PROBED void leak_posix()
{
	void *block = nullptr;
	if (posix_memalign(&block, 64, 256) != 0)
		abort();
	keep(block);
}
extern "C" PROBED void leak_aligned() { keep(aligned_alloc(64, 192)); }
extern "C" PROBED void frees_everything()
{
	delete new Shape();
	delete[] new char[50];
	free(nullptr);
	void *block = malloc(40);
	__asm__ volatile("" : "+r"(block));
	block = realloc(block, 0);
	__asm__ volatile("" : "+r"(block));
	/* jemalloc's has the smallest block, glibc's none. */
	free(block);
	block = realloc(nullptr, 25);
	__asm__ volatile("" : "+r"(block));
	free(block);
	void *big = malloc((size_t)1 << 62);
	__asm__ volatile("" : "+r"(big));
	free(big);
}
/* Blocks from before the wait are freed and grown; a grown block counts as new. */
extern "C" PROBED void grow_early(int i) { kept[i] = realloc(kept[i], 4000); }

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	for (int i = 0; i < 10; i++)
		keep(malloc(5000));
	wait_for_go();
	for (int i = 0; i < 3; i++)
		free(kept[i]);
	grow_early(3);
	for (int i = 0; i < 9; i++)
		leak_new();
	for (int i = 0; i < 8; i++)
		leak_array(100);
	for (int i = 0; i < 7; i++)
		leak_nothrow();
	for (int i = 0; i < 6; i++)
		leak_aligned_new();
	for (int i = 0; i < 5; i++)
		leak_calloc();
	for (int i = 0; i < 4; i++)
		leak_realloc();
	for (int i = 0; i < 3; i++)
		leak_posix();
	for (int i = 0; i < 2; i++)
		leak_aligned();
	for (int i = 0; i < 100; i++)
		frees_everything();
	return finish(MIX_START);
}
