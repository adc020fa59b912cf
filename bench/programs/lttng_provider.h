#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER nanoprobe_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_provider.h"
#if !defined(LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_PROVIDER_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(nanoprobe_bench, call,
	LTTNG_UST_TP_ARGS(const char *, text, long, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer_hex(unsigned long, text, (unsigned long)text)
		lttng_ust_field_integer(long, value, value)))
#endif
#include <lttng/tracepoint-event.h>
