/* A library with a static probe that has a semaphore, and one of the same form without it. In the latter (PLAIN:
 * guarded_plain.c) the word belongs to the program, and is 7. */
#define PROBED __attribute__((noipa))

#ifdef PLAIN
unsigned short guarded_word __attribute__((section(".probes"), used)) = 7;
#define NOTE ""
#else
unsigned short guarded_word __attribute__((section(".probes"), used)) = 0;
#define NOTE                                                                                                 \
	".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                            \
	".balign 4\n"                                                                                            \
	".4byte 992f-991f, 994f-993f, 3\n"                                                                       \
	"991:	.asciz \"stapsdt\"\n"                                                                            \
	"992:	.balign 4\n"                                                                                     \
	"993:	.8byte 990b, 0, guarded_word\n"                                                                  \
	".asciz \"library\"\n"                                                                                   \
	".asciz \"guarded\"\n"                                                                                   \
	".asciz \"-8@%0\"\n"                                                                                     \
	"994:	.balign 4\n"                                                                                     \
	".popsection\n"
#endif

/* Whether a tracer is present. */
PROBED long guarded_call(long i)
{
	if (*(volatile unsigned short *)&guarded_word == 0)
		return 0;
	__asm__ volatile("990: nop\n" NOTE : : "nor"(i));
	return 1;
}
