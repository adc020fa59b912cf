/* The counts of unregistered probes, and names that several functions have. The second function of each name is in
 * ends_twin.c. */
#include "inside.h"

#include <limits.h>

uint64_t call_the_other_twin(uint64_t value);

static FUNCTION uint64_t twin(uint64_t value)
{
	OPAQUE;
	return value + 1;
}

static void the_last_counts_can_be_had(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .flags = flags };
	for (uint64_t calls = 1; calls < 20; calls++) {
		CHECK(np_register_probe(&probe) == 0 && np_probe_hits(&probe) == 0);
		for (uint64_t value = 0; value < calls; value++)
			CHECK(foo(value) == 3 * value + 1);
		CHECK(np_unregister_probe(&probe) == 0 && foo(1) == 4);
		CHECK(np_probe_hits(&probe) == calls && np_probe_nmissed(&probe) == 0);
	}
	struct np_probe never = { NP_SIZE(struct np_probe), .addr = (void *)foo };
	CHECK(np_probe_hits(&never) == 0);
	CHECK(np_register_probe(&probe) == 0 && foo(1) == 4 && np_unregister_probe_async(&probe, NULL) == 0);
	CHECK(np_synchronize() == 0 && np_probe_hits(&probe) == 1);
	EACH_FORM(form) {
		struct np_retprobe returns = on_return((void *)foo, form);
		CHECK(np_register_retprobe(&returns) == 0 && foo(1) == 4 && foo(2) == 7);
		CHECK(np_unregister_retprobe(&returns) == 0 && is(&returns, 2, 0, 0));
	}
}

static void a_name_of_several_functions_is_refused(void)
{
	CHECK(twin(1) == 2 && call_the_other_twin(1) == 3);
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "twin", .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == NP_ERROR_AMBIGUOUS && strstr(np_last_error(), "twin"));
	CHECK(twin(1) == 2 && call_the_other_twin(1) == 3 && np_probe_hits(&probe) == 0);
	probe.symbol = NULL;
	probe.addr = (void *)twin;
	CHECK(np_register_probe(&probe) == 0 && twin(1) == 2 && call_the_other_twin(1) == 3 && np_probe_hits(&probe) == 1);
	CHECK(np_unregister_probe(&probe) == 0);
}

static void every_number_has_its_sentence(void)
{
	static const int unknown[] = { 1, 12345, -12345, INT_MAX, INT_MIN };
	for (int index = 0; index < 5; index++)
		CHECK(!strcmp(np_strerror(unknown[index]), "unknown error"));
	CHECK(!strcmp(np_strerror(0), "no error") && strcmp(np_strerror(NP_ERROR_AMBIGUOUS), "unknown error"));
}

static const struct statement statements[] = {
	STATEMENT(the_last_counts_can_be_had),
	STATEMENT(a_name_of_several_functions_is_refused),
	STATEMENT(every_number_has_its_sentence),
};

STATEMENTS(statements)
