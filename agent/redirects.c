/* Looks up redirects and origins, in tables that are replaced while threads run.
 *
 * The kernel writes the image through /proc/PID/mem byte by byte. A thread that loads a word just then
 * may find it half old and half new. (This is rare: an interrupt within the kernel's `rep movsb`.) So no
 * pointer there ever changes. The current tables are published in one of two ways:
 *
 *     by rows       tables:  | first | second | third |   ...   |      written once each
 *                   rows:    |   .   |   1    |   1   | 0 | ... |      then one byte
 *
 *                   The last row whose byte is set is current. The memory of a table is never reused.
 *
 *     by one row    which a library in the program itself changes by ordinary stores, in its own memory. It reuses
 *                   the memory of a table when no look-up that may have found the table is in progress. Look-ups are
 *                   counted (struct np_readers), with a full barrier before the load of the table's address.
 */
#include "redirects.h"

static const struct np_tables *tables_that_hold(void)
{
	const u8 *rows = (const u8 *)np_load_once(*(u64 *)&np_header.rows);
	u64 low = 0, high = rows ? NP_TABLE_ROWS : 1;
	while (high - low > 1) { /* `low` is a row that exists, `high` one that does not */
		u64 middle = low + (high - low) / 2;
		if (np_load_once(rows[middle]))
			low = middle;
		else
			high = middle;
	}
	return (const struct np_tables *)np_load_once(*(u64 *)&np_header.tables) + low;
}

static const struct np_redirect *entry_in(const struct np_redirect_table *table, u64 address)
{
	const struct np_redirect *entries = (const struct np_redirect *)(table + 1);
	u64 low = 0, high = table->count;
	while (low < high) { /* the first entry after `address` */
		u64 middle = low + (high - low) / 2;
		if (entries[middle].from <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &entries[low - 1] : 0;
}

/* Searches a table, and the older table to which it links. */
static const struct np_redirect *entry_before(const struct np_redirect_table *table, u64 address)
{
	if (!table)
		return 0;
	const struct np_redirect *entry = entry_in(table, address);
	if (!table->older)
		return entry;
	const struct np_redirect *older = entry_in((const struct np_redirect_table *)table->older, address);
	return older && (!entry || older->from > entry->from) ? older : entry;
}

enum which { REDIRECTS, ORIGINS };

static int look_up(enum which which, u64 address, struct np_redirect *found)
{
	struct np_readers *readers = (struct np_readers *)np_load_once(*(u64 *)&np_header.readers);
	u64 *inside = readers ? &readers->inside[np_load_once(readers->phase) & 1] : 0;
	if (inside)
		__atomic_fetch_add(inside, 1, __ATOMIC_SEQ_CST);
	const struct np_tables *tables = tables_that_hold();
	u64 table = which == REDIRECTS ? np_load_once(*(u64 *)&tables->redirects) : np_load_once(*(u64 *)&tables->origins);
	const struct np_redirect *entry = entry_before((const struct np_redirect_table *)table, address);
	if (entry)
		*found = *entry;
	if (inside)
		__atomic_fetch_sub(inside, 1, __ATOMIC_RELEASE);
	return entry != 0;
}

int np_redirect_before(u64 address, struct np_redirect *redirect)
{
	return look_up(REDIRECTS, address, redirect);
}

int np_is_detours_own(u64 address)
{
	enum { DETOUR_BYTES_MAX = 4096 };
	struct np_redirect origin;
	return look_up(ORIGINS, address, &origin) && !origin.to && address - origin.from < DETOUR_BYTES_MAX;
}

u64 np_original_address(u64 address, u64 *pushed)
{
	struct np_redirect origin;
	if (!look_up(ORIGINS, address, &origin)) {
		*pushed = 0;
		return address;
	}
	*pushed = origin.to >> NP_ORIGIN_PUSHED_SHIFT;
	return origin.to ? origin.to & ((1UL << NP_ORIGIN_PUSHED_SHIFT) - 1) : address;
}
