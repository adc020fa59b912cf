/* Walks the target's stack, from the registers at the site.
 *
 * The tracer has compiled every module's call frame information into rows (struct np_unwind_row):
 * where the frame's canonical address is, and where the caller's rbp was saved. Return addresses
 * need no other call frame information, except in a few odd frames that are marked NP_CFA_END.
 *
 *     frame 0      pc = the site, rsp = at the site, rbp = from the detour's frame
 *     caller       pc = *(cfa - 8), rsp = cfa, rbp = as the row says
 *
 * A caller's pc is its return address. The row for it is that of the call, so the address minus one
 * is looked up. After a signal frame the pc is the interrupted instruction itself. Where no module
 * covers the pc (code made at run time), or the module does not describe it (NP_CFA_UNKNOWN), the
 * chain of rbp is followed. An unknown rbp counts as 0, which ends the walk where it would be
 * needed. The walk stops at the first thing that makes no sense: a canonical address that does not
 * rise or is not aligned, an unreadable word, a return address outside of user memory.
 *
 * Where a frame is the interpreter's, the frames of the interpreted program take its place (runtimes.c). Code that
 * HotSpot has made has frames of its own form (hotspot.c).
 */
#include "unwind.h"
#include "returns.h"
#include "hotspot.h"
#include "runtimes.h"
#include "v8.h"

#define NP_FRAMES_MAX 4096

/* Where rt_sigreturn finds the registers, relative to the stack pointer after the handler's return. */
enum { NP_UCONTEXT_RBP = 120, NP_UCONTEXT_RSP = 160, NP_UCONTEXT_RIP = 168 };

/* The row for `pc`. Yields whether a module covers it; even then `*row` may be 0. */
static int find_row(const struct np_control *control, u64 pc, const struct np_unwind_row **row)
{
	u64 offset = np_load_once(control->unwind_offset), limit = control->arena_bytes;
	*row = 0;
	if (!offset || offset % 8 || offset > limit || limit - offset < sizeof(struct np_unwind_table))
		return 0;
	const struct np_unwind_table *table = (const struct np_unwind_table *)((u64)control + offset);
	const struct np_unwind_module *modules = (const struct np_unwind_module *)(table + 1);
	u64 low = 0, high = table->module_count;
	if (high > (limit - offset - sizeof(*table)) / sizeof(*modules))
		return 0;
	while (low < high) {
		u64 middle = low + (high - low) / 2;
		if (pc < modules[middle].start)
			high = middle;
		else if (pc >= modules[middle].end)
			low = middle + 1;
		else
			goto covered;
	}
	return 0;
covered:;
	const struct np_unwind_module *module = &modules[low + (high - low) / 2];
	u64 relative = pc - module->base;
	if (module->rows_offset > limit || module->row_count > (limit - module->rows_offset) / sizeof(**row))
		return 1;
	const struct np_unwind_row *rows = (const struct np_unwind_row *)((u64)control + module->rows_offset);
	low = 0;
	high = module->row_count;
	while (low < high) { /* `low` becomes the first row after `relative` */
		u64 middle = low + (high - low) / 2;
		if (rows[middle].pc <= relative)
			low = middle + 1;
		else
			high = middle;
	}
	if (low)
		*row = &rows[low - 1];
	return 1;
}

static int step_signal(struct np_context *context, struct np_cursor *cursor)
{
	u64 rsp = cursor->rsp;
	cursor->exact = 1;
	return np_stack_word(context, rsp + NP_UCONTEXT_RIP, &cursor->pc) &&
	       np_stack_word(context, rsp + NP_UCONTEXT_RBP, &cursor->rbp) &&
	       np_stack_word(context, rsp + NP_UCONTEXT_RSP, &cursor->rsp);
}

int np_step_to(struct np_context *context, struct np_cursor *cursor, u64 cfa, u64 saved_rbp)
{
	if (cfa <= cursor->rsp || cfa % 8)
		return 0;
	if (saved_rbp && !np_stack_word(context, saved_rbp, &cursor->rbp))
		return 0;
	cursor->rsp = cfa;
	cursor->exact = 0;
	if (!np_stack_word(context, cfa - 8, &cursor->pc))
		return 0;
	cursor->pc = np_real_return_address(cursor->pc);
	return 1;
}

static int step(struct np_context *context, struct np_cursor *cursor, int first)
{
	const struct np_unwind_row *row;
	u64 cfa;
	int covered = find_row(np_control_block(context), cursor->pc - !cursor->exact, &row);
	if (!covered || (row && row->cfa == NP_CFA_UNKNOWN)) {
		const struct np_enabling *enabling = (const struct np_enabling *)context->enabling;
		if (first && (enabling->offset == 0 || enabling->offset == NP_OFFSET_RETURNED))
			return np_step_to(context, cursor, cursor->rsp + 8, 0);
		if (cursor->rbp < cursor->rsp)
			return 0;
		return np_step_to(context, cursor, cursor->rbp + 16, cursor->rbp);
	}
	if (!row)
		return 0;
	u64 offset = (u64)(i64)row->cfa_offset;
	switch (row->cfa) {
	case NP_CFA_RSP:
		cfa = cursor->rsp + offset;
		break;
	case NP_CFA_RBP:
		cfa = cursor->rbp + offset;
		break;
	case NP_CFA_PLT:
		cfa = cursor->rsp + 8 + ((cursor->pc & 15) >= 11 ? 8 : 0);
		break;
	case NP_CFA_SIGNAL:
		return step_signal(context, cursor);
	case NP_CFA_RBP_DEREF:
		if (!np_stack_word(context, cursor->rbp + offset, &cfa))
			return 0;
		break;
	default:
		return 0;
	}
	u64 saved_rbp = 0, rbp_offset = (u64)(i64)row->rbp_offset;
	switch (row->rbp) {
	case NP_RBP_AT_CFA:
		saved_rbp = cfa + rbp_offset;
		break;
	case NP_RBP_LOST:
		cursor->rbp = 0;
		break;
	case NP_RBP_AT_RBP:
		if (!cursor->rbp)
			return 0;
		saved_rbp = cursor->rbp + rbp_offset;
		break;
	}
	return np_step_to(context, cursor, cfa, saved_rbp);
}

NP_INLINE void start(const struct np_context *context, struct np_cursor *cursor)
{
	/* The full frame's registers lie below the frame's flags. */
	const struct np_frame_below *below = (const struct np_frame_below *)context->frame - 1;
	cursor->pc = ((const struct np_enabling *)context->enabling)->site;
	cursor->rsp = context->target_rsp;
	cursor->rbp = below->rbp;
	cursor->exact = 1;
}

NP_INLINE int makes_sense(u64 pc)
{
	return pc >= NP_LOWEST_ADDRESS && pc <= NP_HIGHEST_ADDRESS;
}

/* Whether code that returns to `pc` may be V8's: 0: no; 1: a module has it, and does not describe it; 2: it was made at
 * run time. Both are linked by rbp. Not inlined, so that the walk's own frame stays small (I10). */
static __attribute__((noinline)) u32 may_be_v8_code(struct np_context *context, u64 pc)
{
	const struct np_unwind_row *row;
	if (!find_row(np_control_block(context), pc - 1, &row))
		return 2;
	return row && row->cfa == NP_CFA_UNKNOWN;
}

/* The functions of JavaScript in the place of a native frame; yields the number of frames. */
static __attribute__((noinline)) u64 javascript(struct np_context *context, const struct np_hotspot_walk *walk, u64 is_made)
{
	struct np_v8_walk javascript;
	javascript.fp = walk->native.high - 16;
	javascript.pc = walk->native.pc;
	javascript.is_made = is_made;
	javascript.frames = walk->frames;
	javascript.at = walk->count - 1;
	javascript.count = walk->count;
	javascript.limit = walk->limit;
	if (np_v8_find_frame(context, walk->runtimes, &javascript) &&
	    (!np_v8_find_exit(context, &javascript) || !np_v8_find_list(context, &javascript) ||
	     !np_v8_add_list(context, &javascript)))
		np_v8_add_frame(context, &javascript);
	return javascript.count;
}

/* Walks the stack of a process that also runs interpreted code. Not inlined, so that others need less stack. */
static __attribute__((noinline)) u64 walk_interpreted(struct np_context *context, const struct np_runtimes *runtimes,
                                                      u64 *frames, u64 limit)
{
	const struct np_enabling *enabling = (const struct np_enabling *)context->enabling;
	struct np_python_walk python = { 0, 0, 0 };
	struct np_hotspot_walk walk;
	struct np_cursor *cursor = &walk.cursor;
	u64 is_first = 1;
	walk.runtimes = runtimes;
	walk.frames = frames;
	walk.count = 0;
	walk.limit = limit;
	walk.hotspot = np_find_hotspot(np_control_block(context), runtimes);
	start(context, cursor);
	while (walk.count < limit && makes_sense(cursor->pc)) {
		if (walk.hotspot && np_hotspot_find(context, &walk)) {
			np_hotspot_find_place(context, &walk);
			np_hotspot_find_scope(context, &walk);
			do
				np_hotspot_add(context, &walk, np_hotspot_next(context, &walk));
			while (walk.code.scope && walk.count < limit);
			if (!np_hotspot_step(context, &walk))
				break;
			is_first = 0;
			continue;
		}
		walk.native.pc = cursor->pc;
		walk.native.low = cursor->rsp;
		walk.native.unlinked = is_first && (enabling->offset == 0 || enabling->offset == NP_OFFSET_RETURNED);
		int evaluates = np_evaluates(runtimes, cursor->pc - !cursor->exact);
		((volatile u64 *)frames)[walk.count++] = cursor->pc;
		/* The last frame's caller is only needed to know how far the frame reaches. */
		if ((walk.count == limit && !evaluates && !runtimes->v8_offset) || !step(context, cursor, is_first))
			break;
		walk.native.high = cursor->rsp;
		if (evaluates)
			walk.count = np_python_frames(context, runtimes, &python, &walk.native, frames, walk.count - 1,
			                              limit);
		if (runtimes->v8_offset && !evaluates && !is_first) {
			u32 code = may_be_v8_code(context, walk.native.pc);
			if (code)
				walk.count = javascript(context, &walk, code == 2);
		}
		is_first = 0;
	}
	return walk.count;
}

/* Not inlined, so that `np_walk` needs no stack of its own. */
static __attribute__((noinline)) u64 walk_native(struct np_context *context, u64 *frames, u64 limit)
{
	struct np_cursor cursor;
	u64 count = 0;
	start(context, &cursor);
	while (count < limit && makes_sense(cursor.pc)) {
		((volatile u64 *)frames)[count++] = cursor.pc;
		if (count == limit || !step(context, &cursor, count == 1))
			break;
	}
	return count;
}

u64 np_walk(struct np_context *context, u64 *frames, u64 limit)
{
	limit = np_minimum(limit, NP_FRAMES_MAX);
	const struct np_runtimes *runtimes = np_find_runtimes(np_control_block(context));
	if (np_unlikely(runtimes != 0))
		return walk_interpreted(context, runtimes, frames, limit);
	return walk_native(context, frames, limit);
}

NP_ENTRY void np_ustack(struct np_context *context, u64 destination, u64 frames)
{
	if (!frames)
		frames = np_control_block(context)->ustackframes;
	u64 count = np_walk(context, (u64 *)destination + 1, frames);
	*(volatile u64 *)destination = count;
}

NP_ENTRY void np_ucaller(struct np_context *context)
{
	struct np_cursor cursor;
	start(context, &cursor);
	context->result = step(context, &cursor, 1) && makes_sense(cursor.pc) ? cursor.pc : 0;
}
