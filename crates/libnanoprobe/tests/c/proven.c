/* SIMD registers are saved around handlers unless these provably leave them alone. Whatever a handler does, the
 * probed code finds xmm0-15, mxcsr and the x87 unit as it left them. The handler's depth in the stack shows
 * whether registers are saved: the area has 2816 bytes. */
#include <nanoprobe.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, np_last_error()); \
			exit(1); \
		} \
	} while (0)

enum { AREA = 2816, COMPARED = 416 };

/* The image of fxsave, before and after a call of `function`. */
struct image {
	unsigned char bytes[512] __attribute__((aligned(16)));
} before, after;
void call_between(void (*function)(void));
void probed(void);

/* How deep in the stack the handlers were, and how often they ran. */
uint64_t depth, came, replaced;
#define HANDLER(name) int name(struct np_probe *probe, struct np_regs *regs)
HANDLER(leaf);          /* reads only its stack pointer */
HANDLER(caller);        /* calls `helper`, which does nothing */
HANDLER(spoiler);       /* spoils all registers */
HANDLER(legacy);        /* spoils xmm0-15 and mxcsr: this is proven, so only these are saved */
HANDLER(calls_spoiler); /* calls `spoiler` */
HANDLER(through_table); /* calls `helper` by a pointer */
HANDLER(in_disguise);   /* returns to spoiler */
void helper(void);
void spoil_instead(void);
int returned(struct np_retprobe_instance *instance, struct np_regs *regs);
int returned_spoiler(struct np_retprobe_instance *instance, struct np_regs *regs);
int returned_legacy(struct np_retprobe_instance *instance, struct np_regs *regs);

__asm__(".text\n"
	"call_between: push %rbx\n mov %rdi, %rbx\n fninit\n fldpi\n fld1\n"
	".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
	" mov $(0x1234567 * (\\n + 1)), %eax\n movq %rax, %xmm\\n\n pshufd $0x11, %xmm\\n, %xmm\\n\n .endr\n"
	" movl $0x5f80, -4(%rsp)\n ldmxcsr -4(%rsp)\n"
	" fxsave64 before(%rip)\n call *%rbx\n fxsave64 after(%rip)\n"
	" movl $0x1f80, -4(%rsp)\n ldmxcsr -4(%rsp)\n fninit\n pop %rbx\n ret\n"
	".p2align 4\n.globl probed\n.type probed, @function\nprobed: lea 0x10(%rdi), %rax\n lea 0x10000000(%rax), %rax\n ret\n"
	".size probed, . - probed\n"
	".macro count\n mov %rsi, %rax\n sub %rsp, %rax\n mov %rax, depth(%rip)\n incq came(%rip)\n .endm\n"
	".macro spoils\n"
	".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n pcmpeqd %xmm\\n, %xmm\\n\n .endr\n"
	" movl $0x1fbf, -4(%rsp)\n ldmxcsr -4(%rsp)\n fninit\n fldl2e\n fldz\n fldlg2\n"
	" movw $0x77f, -4(%rsp)\n fldcw -4(%rsp)\n .endm\n"
	".macro function name\n.p2align 4\n.globl \\name\n.type \\name, @function\n\\name:\n .endm\n"
	".macro end name\n xor %eax, %eax\n ret\n.size \\name, . - \\name\n .endm\n"
	"function leaf\n count\n end leaf\n"
	"function returned\n count\n end returned\n"
	"function helper\n lea 0x10000000(%rax), %rax\n end helper\n"
	"function caller\n count\n sub $8, %rsp\n call helper\n add $8, %rsp\n end caller\n"
	"function spoiler\n count\n spoils\n end spoiler\n"
	"function legacy\n count\n"
	".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n pcmpeqd %xmm\\n, %xmm\\n\n .endr\n"
	" movl $0x1fbf, -4(%rsp)\n ldmxcsr -4(%rsp)\n end legacy\n"
	"function returned_legacy\n jmp legacy\n .size returned_legacy, . - returned_legacy\n"
	"function returned_spoiler\n count\n spoils\n end returned_spoiler\n"
	"function calls_spoiler\n sub $8, %rsp\n call spoiler\n add $8, %rsp\n end calls_spoiler\n"
	"function through_table\n count\n push %rbx\n lea helper(%rip), %rbx\n call *%rbx\n pop %rbx\n end through_table\n"
	"function in_disguise\n lea spoiler(%rip), %rax\n push %rax\n ret\n .size in_disguise, . - in_disguise\n"
	"function spoil_instead\n incq replaced(%rip)\n spoils\n end spoil_instead\n");

static void all_stays(uint64_t hits, int is_saved)
{
	came = 0;
	for (uint64_t round = 0; round < 10; round++) {
		call_between(probed);
		CHECK(!memcmp(&before, &after, COMPARED));
		CHECK(is_saved < 0 || (depth > AREA) == is_saved);
	}
	CHECK(came == 10 * hits);
}

static struct np_probe made(np_pre_handler handler, unsigned flags)
{
	return (struct np_probe){ NP_SIZE(struct np_probe), .addr = probed, .pre_handler = handler, .flags = flags };
}

static void with(np_pre_handler handler, int is_saved)
{
	for (unsigned flags = 0; flags <= NP_PROBE_TRAP; flags += NP_PROBE_TRAP) {
		struct np_probe probe = made(handler, flags);
		CHECK(!np_register_probe(&probe));
		all_stays(1, is_saved);
		CHECK(!np_unregister_probe(&probe));
	}
}

static void post(struct np_probe *probe, struct np_regs *regs, unsigned long flags)
{
	(void)flags;
	spoiler(probe, regs);
}

/* If one handler at an instruction is not proven, the registers are saved around all handlers there. */
static void beside_each_other(void)
{
	struct np_probe one = made(leaf, 0), other = made(spoiler, 0), behind = made(leaf, 0);
	behind.post_handler = post;
	CHECK(!np_register_probe(&one));
	all_stays(1, 0);
	CHECK(!np_register_probe(&other));
	all_stays(2, 1);
	CHECK(!np_unregister_probe(&other));
	all_stays(1, 0);
	/* For `legacy` it is enough to save xmm0-15. With `spoiler` as the third handler, all registers must be saved. */
	other = made(legacy, 0);
	CHECK(!np_register_probe(&other));
	all_stays(2, 1);
	struct np_probe third = made(spoiler, 0);
	CHECK(!np_register_probe(&third));
	all_stays(3, 1);
	CHECK(!np_unregister_probe(&third));
	all_stays(2, 1);
	CHECK(!np_unregister_probe(&other));
	all_stays(1, 0);
	CHECK(!np_register_probe(&behind));
	all_stays(3, 1);
	CHECK(!np_unregister_probe(&behind));
	CHECK(!np_unregister_probe(&one));
}

/* Probes and hooks are put on code that a proven handler executes, after the proof. Their hits in handlers are
   missed. */
static void hooked_later(void)
{
	struct np_probe probe = made(caller, 0), on_helper = made(spoiler, 0);
	CHECK(!np_register_probe(&probe));
	all_stays(1, 0);
	CHECK(!np_hook((void *)helper, (void *)spoil_instead, NULL));
	all_stays(1, 0);
	helper();
	CHECK(replaced == 1);
	CHECK(!np_unhook((void *)helper));
	for (unsigned flags = 0; flags <= NP_PROBE_TRAP; flags += NP_PROBE_TRAP) {
		on_helper.addr = (void *)helper;
		on_helper.offset = 0;
		on_helper.flags = flags;
		CHECK(!np_register_probe(&on_helper));
		all_stays(1, 0);
		CHECK(np_probe_hits(&on_helper) == 0 && np_probe_nmissed(&on_helper) == 10);
		CHECK(!np_unregister_probe(&on_helper));
	}
	CHECK(!np_hook((void *)caller, (void *)spoil_instead, NULL));
	all_stays(1, 0);
	CHECK(!np_unhook((void *)caller));
	CHECK(!np_unregister_probe(&probe));
	CHECK(replaced == 1);
}

/* The proof does not read past a hook that is there already. */
static void hooked_before(void)
{
	struct np_probe probe = made(caller, 0);
	CHECK(!np_hook((void *)caller, (void *)spoil_instead, NULL));
	CHECK(!np_register_probe(&probe));
	all_stays(1, -1);
	CHECK(!np_unhook((void *)caller));
	CHECK(!np_unregister_probe(&probe));
}

static void returns(void)
{
	for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++)
		for (int spoils = 0; spoils < 5; spoils++) {
			struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .addr = (void *)probed }, .form = form };
			probe.handler = spoils == 4 ? returned_legacy : spoils & 1 ? returned_spoiler : returned;
			probe.entry_handler = spoils == 4 ? returned_legacy : spoils & 2 ? returned_spoiler : returned;
			CHECK(!np_register_retprobe(&probe));
			all_stays(2, spoils != 0);
			CHECK(np_probe_hits(&probe.probe) == 10);
			CHECK(!np_unregister_retprobe(&probe));
		}
}

/* The library is unloaded, and another is loaded in its place. The structure still has the handler's old address. */
static void another_library(const char *quiet, const char *loud)
{
	void *library = dlopen(quiet, RTLD_NOW);
	CHECK(library);
	void *handler = dlsym(library, "handler");
	struct np_probe probe = made((np_pre_handler)handler, 0);
	CHECK(!np_register_probe(&probe));
	call_between(probed);
	CHECK(!memcmp(&before, &after, COMPARED));
	uint64_t (*deep)(void) = (uint64_t (*)(void))dlsym(library, "deep");
	CHECK(deep && deep() < AREA);
	CHECK(!dlclose(library));
	void *mapped = dlopen(loud, RTLD_NOW);
	CHECK(mapped);
	if (dlsym(mapped, "handler") == handler) {
		call_between(probed);
		CHECK(!memcmp(&before, &after, COMPARED));
		printf("another library\n");
	} else {
		printf("elsewhere\n");
	}
	CHECK(!np_unregister_probe(&probe));
	dlclose(mapped);
}

int main(int count, char **arguments)
{
	/* This must come first: so far nothing else has made the library look at the linker. */
	if (count == 3)
		another_library(arguments[1], arguments[2]);
	with(leaf, 0);
	with(caller, 0);
	with(spoiler, 1);
	with(legacy, 1);
	with(calls_spoiler, 1);
	with(through_table, 1);
	with(in_disguise, 1);
	beside_each_other();
	hooked_later();
	hooked_before();
	returns();
	printf("done\n");
	return 0;
}
