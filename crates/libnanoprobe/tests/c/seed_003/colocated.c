/* Section 4.2: any number of probes at one probepoint. */
#include "check.h"

#include <signal.h>

FUNCTION uint64_t plain(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

enum { PROBES = 100 };
static struct np_probe probes[PROBES];
static int order[4 * PROBES], length;

static int pre(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	order[length++] = (int)(probe - probes);
	return 0;
}

static void post(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)regs;
	(void)none;
	order[length++] = PROBES + (int)(probe - probes);
}

static void put(int index)
{
	probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre,
					   .flags = flags };
	CHECK(np_register_probe(&probes[index]) == 0);
}

static void call_plain(void)
{
	length = 0;
	CHECK(plain(7) == 22);
}

static void section_4_2_two_probes_at_one_address_run_in_order_of_registration(void)
{
	put(5);
	put(3);
	call_plain();
	CHECK(length == 2 && order[0] == 5 && order[1] == 3);
	CHECK(np_unregister_probe(&probes[5]) == 0);
	put(5);
	call_plain();
	CHECK(length == 2 && order[0] == 3 && order[1] == 5);
	CHECK(np_unregister_probe(&probes[3]) == 0 && np_unregister_probe(&probes[5]) == 0);
}

static void section_4_2_there_may_be_any_number_of_probes_at_one_address(void)
{
	unsigned char before[16];
	memcpy(before, (void *)plain, sizeof(before));
	for (int index = 0; index < PROBES; index++)
		put(index);
	call_plain();
	CHECK(length == PROBES);
	for (int index = 0; index < PROBES; index++)
		CHECK(order[index] == index);
	/* Every second probe is removed, one by one. The others stay, in their order. */
	for (int index = 0; index < PROBES; index += 2)
		CHECK(np_unregister_probe(&probes[index]) == 0);
	call_plain();
	CHECK(length == PROBES / 2);
	for (int index = 0; index < length; index++)
		CHECK(order[index] == 2 * index + 1 && np_probe_hits(&probes[2 * index + 1]) == 2);
	for (int index = 1; index < PROBES; index += 2)
		CHECK(np_unregister_probe(&probes[index]) == 0);
	CHECK(memcmp(before, (void *)plain, sizeof(before)) == 0);
	call_plain();
	CHECK(length == 0);
}

static void section_4_2_post_handlers_are_called_in_turn_behind_all_pre_handlers(void)
{
	for (int index = 0; index < 5; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)plain, .flags = flags };
		if (index != 1)
			probes[index].pre_handler = pre;
		if (index != 2)
			probes[index].post_handler = post;
		CHECK(np_register_probe(&probes[index]) == 0);
	}
	call_plain();
	static const int expected[] = { 0, 2, 3, 4, PROBES, PROBES + 1, PROBES + 3, PROBES + 4 };
	CHECK(length == 8 && !memcmp(order, expected, sizeof(expected)));
	for (int index = 0; index < 5; index++)
		CHECK(np_unregister_probe(&probes[index]) == 0);
}

static volatile uint64_t *volatile nowhere = (volatile uint64_t *)8;
static int asked[PROBES];

static int faults(struct np_probe *probe, struct np_regs *regs)
{
	pre(probe, regs);
	return (int)*nowhere;
}

static void faults_behind(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	post(probe, regs, none);
	*nowhere = none;
}

static int on_fault(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)regs;
	CHECK(signal == SIGSEGV);
	asked[probe - probes]++;
	return 1;
}

static void section_4_2_only_the_fault_handler_of_the_probe_whose_handler_faults_is_invoked(void)
{
	for (int index = 0; index < 4; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre,
						   .fault_handler = on_fault, .flags = flags };
		if (index == 1)
			probes[index].pre_handler = faults;
		if (index == 2)
			probes[index].post_handler = faults_behind;
		CHECK(np_register_probe(&probes[index]) == 0);
	}
	for (int round = 1; round <= 10; round++) {
		call_plain();
		static const int expected[] = { 0, 1, 2, 3, PROBES + 2 };
		CHECK(length == 5 && !memcmp(order, expected, sizeof(expected)));
		CHECK(asked[0] == 0 && asked[1] == round && asked[2] == round && asked[3] == 0);
	}
	for (int index = 0; index < 4; index++)
		CHECK(np_unregister_probe(&probes[index]) == 0);
}

static uint64_t mirror(uint64_t value)
{
	CHECK(value == 7);
	order[length++] = -1;
	np_jprobe_return();
}

static int returned(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	CHECK(regs->rax == 22);
	order[length++] = -2;
	return 0;
}

static void section_4_2_kprobes_jprobes_and_return_probes_share_an_address(void)
{
	/* The kernel allows one jumper probe at an address; here there are two. */
	struct np_jprobe jumpers[] = { { { NP_SIZE(struct np_probe), .addr = (void *)plain, .flags = flags }, (void *)mirror },
				       { { NP_SIZE(struct np_probe), .addr = (void *)plain, .flags = flags }, (void *)mirror } };
	struct np_retprobe returns = { { NP_SIZE(struct np_retprobe), .addr = (void *)plain, .flags = flags },
				       .handler = returned };
	CHECK(np_register_jprobe(&jumpers[0]) == 0);
	put(1);
	CHECK(np_register_retprobe(&returns) == 0);
	put(2);
	CHECK(np_register_jprobe(&jumpers[1]) == 0);
	for (int round = 0; round < 10; round++) {
		call_plain();
		static const int expected[] = { -1, 1, 2, -1, -2 };
		CHECK(length == 5 && !memcmp(order, expected, sizeof(expected)));
	}
	CHECK(np_unregister_jprobe(&jumpers[0]) == 0 && np_unregister_probe(&probes[2]) == 0);
	call_plain();
	CHECK(length == 3 && order[0] == 1 && order[1] == -1 && order[2] == -2);
	CHECK(np_unregister_retprobe(&returns) == 0);
	call_plain();
	CHECK(length == 2 && order[0] == 1 && order[1] == -1);
	CHECK(np_unregister_jprobe(&jumpers[1]) == 0 && np_unregister_probe(&probes[1]) == 0);
}

static const struct statement statements[] = {
	STATEMENT(section_4_2_two_probes_at_one_address_run_in_order_of_registration),
	STATEMENT(section_4_2_there_may_be_any_number_of_probes_at_one_address),
	STATEMENT(section_4_2_post_handlers_are_called_in_turn_behind_all_pre_handlers),
	STATEMENT(section_4_2_only_the_fault_handler_of_the_probe_whose_handler_faults_is_invoked),
	STATEMENT(section_4_2_kprobes_jprobes_and_return_probes_share_an_address),
};

STATEMENTS(statements)
