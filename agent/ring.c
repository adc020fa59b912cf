/* The ring of a thread. It has one writer, this thread, and one reader, the tracer. Positions
 * count bytes since the start and only grow; a position's place is its remainder by the size, a
 * power of two.
 *
 *     tail                      head        pending
 *     v                         v           v
 *     | record | record | ...   | reserved  | free ...
 *
 * A record is contiguous. A record that would cross the ring's end is preceded by a filler (epid 0)
 * up to the end, which may have only eight bytes: epid and size. One store of head publishes filler
 * and record. So a clause that fails between reserve and commit leaves nothing in the ring.
 *
 * No room: the policies switch and fill drop the record. The policy overwrite gives up the oldest records. It
 * first moves ring_overwritten past them and then writes. A reader copies a record and then loads
 * ring_overwritten: if its value is not after the record's start, the copy is whole. After exit() no record is
 * given up: the ring then holds the result, and handlers may run for some milliseconds more, until their probes
 * are gone.
 */
#include "ring.h"

/* Moves ring_overwritten until `need` bytes fit after head. */
static NP_COLD void make_room(struct np_context *context, u64 head, u64 tail, u64 need)
{
	u64 size = context->ring_bytes, oldest = context->ring_overwritten;
	if (head - tail < head - oldest)
		oldest = tail; /* the tracer has already read these records, so they need not be kept */
	if (head - oldest > size)
		oldest = head;
	while (head + need - oldest > size) {
		u64 bytes = ((struct np_record *)(context->ring + (oldest & (size - 1))))->bytes;
		if (bytes < 8 || bytes % 8 || bytes > head - oldest) {
			oldest = head; /* the target has damaged the ring: give up all records */
			break;
		}
		oldest += bytes;
	}
	np_store(context->ring_overwritten, oldest);
}

/* The usual case: the oldest record, in whose place the new one goes, has the same size. Yields whether that was
 * the case. */
NP_INLINE int give_up_one(struct np_context *context, u64 head, u64 tail, u64 need)
{
	u64 size = context->ring_bytes, oldest = context->ring_overwritten;
	u64 bytes = ((struct np_record *)(context->ring + (oldest & (size - 1))))->bytes;
	if (np_unlikely(head - oldest > size || head - tail < head - oldest || bytes % 8 || bytes > head - oldest ||
	                head + need - oldest - bytes > size))
		return 0;
	np_store(context->ring_overwritten, oldest + bytes);
	return 1;
}

/* The ring is larger than the processor's first caches. So the cache line of one of the next records is requested
 * while the clock is read. After the ring's end this requests a line that is not needed, and does not fault. */
#define NP_RING_AHEAD 640

/* Writes the header to its place. The stores that need only known values come first, so that few
 * values have to be kept, and saved, while the clock is read. */
NP_INLINE struct np_record *begin(struct np_context *context, struct np_record *record, u32 epid, u64 bytes, u64 pending)
{
	u32 cpu;
	__builtin_prefetch((const char *)record + NP_RING_AHEAD, 1);
	np_store(context->ring_pending, pending);
	np_store(record->epid, epid);
	np_store(record->bytes, (u32)bytes);
	np_store(record->tid, context->tid);
	record->tsc = np_tsc_and_cpu(&cpu, context->ring_untimed != 0);
	record->cpu = cpu;
	return record;
}

NP_INLINE int has_exited(const struct np_context *context)
{
	return np_load_once(np_control_block(context)->exit_requested) != 0;
}

/* Makes room for `need` bytes after head, if the policy can. 0: there is no room. */
NP_INLINE int has_room(struct np_context *context, u64 size, u64 head, u64 need)
{
	u64 tail = np_load_once(context->ring_tail);
	if (context->ring_policy != NP_RING_OVERWRITE)
		return np_likely(head - tail <= size - need);
	u64 oldest = context->ring_overwritten;
	if (head + need - oldest > size) {
		if (np_unlikely(has_exited(context)))
			return 0;
		if (!give_up_one(context, head, tail, need))
			make_room(context, head, tail, need);
	}
	return 1;
}

static NP_COLD struct np_record *dropped(struct np_context *context)
{
	context->ring_pending = 0;
	/* A record that is dropped after exit() does not count as lost. */
	if (context->ring_policy != NP_RING_OVERWRITE || !has_exited(context))
		context->ring_drops++;
	return 0;
}

/* The unusual cases: no ring, a record as large as the ring, or a record that would cross the ring's end. */
static NP_COLD struct np_record *reserve_anyway(struct np_context *context, u32 epid, u64 bytes)
{
	u64 size = context->ring_bytes, head = context->ring_head;
	if (!context->ring || bytes > size)
		return dropped(context);
	bytes = (bytes + 7) & ~7UL;
	if (bytes < sizeof(struct np_record))
		bytes = sizeof(struct np_record);
	u64 to_end = size - (head & (size - 1));
	u64 need = bytes <= to_end ? bytes : bytes + to_end;
	if (need > size || !has_room(context, size, head, need))
		return dropped(context);
	struct np_record *record = (struct np_record *)(context->ring + (head & (size - 1)));
	if (bytes > to_end) {
		record->epid = 0;
		record->bytes = (u32)to_end;
		record = (struct np_record *)context->ring;
	}
	return begin(context, record, epid, bytes, head + need);
}

NP_INLINE struct np_record *reserve(struct np_context *context, u32 epid, u64 bytes)
{
	u64 size = context->ring_bytes, head = context->ring_head, place = head & (size - 1);
	u64 whole = (bytes + 7) & ~7UL;
	if (np_unlikely(!context->ring || bytes > size || whole > size - place || whole < sizeof(struct np_record)))
		return reserve_anyway(context, epid, bytes);
	if (np_unlikely(!has_room(context, size, head, whole)))
		return dropped(context);
	return begin(context, (struct np_record *)(context->ring + place), epid, whole, head + whole);
}

struct np_record *np_ring_reserve(struct np_context *context, u32 epid, u64 bytes)
{
	return reserve(context, epid, bytes);
}

NP_ENTRY void np_reserve(struct np_context *context, u64 epid, u64 bytes)
{
	context->result = (u64)reserve(context, (u32)epid, bytes);
}

NP_ENTRY void np_commit(struct np_context *context)
{
	np_ring_commit(context);
}

NP_ENTRY void np_error(struct np_context *context, u64 action)
{
	const struct np_enabling *enabling = (const struct np_enabling *)context->enabling;
	context->errors++;
	struct np_record *record = reserve(context, enabling->epid | NP_RECORD_ERROR,
	                                   sizeof(struct np_record) + sizeof(struct np_error));
	if (!record)
		return;
	struct np_error *error = (struct np_error *)(record + 1);
	error->fault = (u32)context->fault;
	error->action = (u32)action;
	error->value = context->fault == NP_FAULT_BAD_ADDRESS ? context->fault_address : 0;
	np_ring_commit(context);
}
