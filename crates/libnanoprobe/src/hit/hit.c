/* See hit.h. This file is compiled without SIMD instructions, so the program's values stay in the SIMD registers
 * until they are saved. */
#include "hit.h"

enum { DIRECTION = 0x400, TRAP = 0x100, ALIGNMENT = 0x40000, IDENTIFICATION = 0x200000 };
/* The flags that the detour's sahf does not restore. */
#define RARE_FLAGS ((uint64_t)(DIRECTION | TRAP | ALIGNMENT | IDENTIFICATION))

/* A result of `run` besides 0 and a handler's own answer: the instruction was emulated. */
enum { EMULATED = -0x7fffffff };

int (*np_hit_emulate)(const void *emulation, void *ucontext) NP_HIDDEN;
uint32_t np_simd_features NP_HIDDEN;
uint32_t np_simd_live NP_HIDDEN;
uint32_t np_simd_initial NP_HIDDEN;

/* dispatch.S */
_Static_assert(offsetof(struct np_hit_site, list) == 8, "SITE_LIST");
_Static_assert(offsetof(struct np_hit_list, saved) == 8, "LIST_SAVED");
_Static_assert(offsetof(struct np_hit_list, call) == 32, "LIST_CALL");
_Static_assert(offsetof(struct np_hit_list, argument) == 40, "LIST_ARGUMENT");
_Static_assert(offsetof(struct np_hit_list, counter) == 48, "LIST_COUNTER");
_Static_assert(offsetof(struct np_hit_list, enabled) == 56, "LIST_ENABLED");
_Static_assert(offsetof(struct np_hit_thread, epoch) == 8, "THREAD_EPOCH");
_Static_assert(offsetof(struct np_hit_thread, error) == 16, "THREAD_ERROR");
_Static_assert(offsetof(struct np_regs, rip) == 120, "REGS_RIP");
_Static_assert(offsetof(struct np_regs, rflags) == 128, "REGS_FLAGS");
_Static_assert(offsetof(struct np_regs, rsp) == 136, "REGS_RSP");
_Static_assert(RARE_FLAGS == 0x240500 && NP_SIMD_BYTES == 2816, "RARE_FLAGS, AREA");
_Static_assert(NP_SIMD_XMM == 8 && NP_HIT_SAVED_ERRNO == 1 && NP_HIT_SAVED_NOTHING == 0, "SIMD_XMM, SAVED_ERRNO");
_Static_assert(NP_HIT_PAIR == 0x70616972, "PAIR");

#define compiler_barrier() __asm__ volatile("" ::: "memory")

/* Kinds other than plain probes count their hits themselves: a return probe counts a call only when its return is
 * seen. */
static inline NP_PATH int call(struct np_hit_thread *self, struct np_hit_entry *entry, struct np_regs *regs)
{
	if (np_unlikely(entry->function != NULL))
		return entry->function(entry, regs);
	self->counters[entry->index].hits++;
	return entry->pre ? entry->pre((struct np_probe *)entry->owner, regs) : 0;
}

static NP_PATH __attribute__((noinline)) void abandoned(struct np_hit_thread *self)
{
	self->jprobe = 0;
	np_retprobe_abandoned_handler(self);
}

/* If a fault abandons the handler, the thread continues here. */
static NP_PATH __attribute__((noinline)) int fire_guarded(struct np_hit_thread *self, struct np_hit_entry *entry,
						  struct np_regs *regs)
{
	int skip = 0;
	if (!__builtin_setjmp(self->recover)) {
		self->recoverable = 1;
		skip = call(self, entry, regs);
	} else {
		self = np_hit_self;
		abandoned(self);
	}
	self->recoverable = 0;
	return skip;
}

/* Fires one entry. Not 0: the instruction is not executed. */
static inline NP_PATH int fire(struct np_hit_thread *self, struct np_hit_entry *entry, struct np_regs *regs)
{
	self->current = entry;
	if (np_unlikely(entry->fault != NULL))
		return fire_guarded(self, entry, regs);
	return call(self, entry, regs);
}

static NP_PATH __attribute__((noinline)) void fire_behind(struct np_hit_thread *self, struct np_hit_entry *entry, struct np_regs *regs)
{
	self->current = entry;
	if (np_unlikely(entry->fault != NULL)) {
		if (__builtin_setjmp(self->recover)) {
			np_hit_self->recoverable = 0;
			return;
		}
		self->recoverable = 1;
	}
	entry->post((struct np_probe *)entry->owner, regs, 0);
	self->recoverable = 0;
}

static NP_PATH __attribute__((noinline)) void miss(struct np_hit_thread *self, const struct np_hit_site *site)
{
	/* From here on the thread counts as inside of a handler. No list that it sees is freed before it has left the
	   handler. */
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	for (uint64_t index = 0; list && index < list->count; index++)
		if (list->entries[index]->enabled)
			self->counters[list->entries[index]->index].missed++;
	if (np_unlikely(site->otherwise != NULL))
		site->otherwise();
}

/* Emulates the branch, call or return at a site, on `regs`. Not 0: done. */
static NP_PATH __attribute__((noinline)) int emulate(const struct np_hit_site *site, struct np_regs *regs)
{
	/* The fields of struct np_ucontext (agent/chain.h) up to the flags. */
	uint64_t context[23] = {
		0,         0,         0,         0,         0,         regs->r8,  regs->r9,  regs->r10,
		regs->r11, regs->r12, regs->r13, regs->r14, regs->r15, regs->rdi, regs->rsi, regs->rbp,
		regs->rbx, regs->rdx, regs->rax, regs->rcx, regs->rsp, regs->rip, regs->rflags,
	};
	if (!np_hit_emulate(site->emulation, context))
		return 0;
	/* A branch changes no other register. */
	regs->rcx = context[19];
	regs->rsp = context[20];
	regs->rip = context[21];
	return 1;
}

/* Emulates the instruction and runs the post-handlers after it. Not 0: the thread continues where `regs` say. */
static NP_PATH __attribute__((noinline)) int run_emulated(struct np_hit_thread *self, const struct np_hit_site *site,
						  const struct np_hit_list *list, struct np_regs *regs)
{
	if (regs->rip != site->address || !emulate(site, regs))
		return 0;
	for (uint64_t index = 0; index < list->count; index++)
		if (list->entries[index]->enabled && list->entries[index]->post)
			fire_behind(self, list->entries[index], regs);
	return EMULATED;
}

/* Runs the pre-handlers or the post-handlers. Yields whether one of the handlers asks for the instruction to be
 * skipped. */
static inline __attribute__((always_inline)) int run(struct np_hit_thread *self, const struct np_hit_site *site,
						     const struct np_hit_list *list, struct np_regs *regs, int behind)
{
	int skip = 0, pair = 0;
	int saved = *self->error;
	for (uint64_t index = 0; index < list->count && !skip; index++) {
		struct np_hit_entry *entry = list->entries[index];
		if (!__atomic_load_n(&entry->enabled, __ATOMIC_RELAXED))
			continue;
		if (!behind)
			skip = fire(self, entry, regs);
		else if (entry->post)
			fire_behind(self, entry, regs);
		if (skip == NP_HIT_PAIR && entry->function) {
			pair = NP_HIT_PAIR;
			skip = 0;
		}
	}
	if (!behind && np_unlikely(list->emulates) && !skip)
		skip = run_emulated(self, site, list, regs);
	*self->error = saved;
	return skip ? skip : pair;
}

static NP_PATH __attribute__((noinline)) int run_with_simd(struct np_hit_thread *self, const struct np_hit_site *site,
						   const struct np_hit_list *list, struct np_regs *regs, int behind)
{
	__attribute__((aligned(64))) char area[NP_SIMD_BYTES];
	uint32_t features = np_hit_save(area, list);
	int skip = run(self, site, list, regs, behind);
	np_simd_restore(area, features);
	return skip;
}

static inline __attribute__((always_inline)) uint32_t hit(struct np_hit_site *site, struct np_regs *regs,
							  uint64_t on, int behind)
{
	struct np_hit_thread *self = np_hit_self;
	if (np_unlikely(!self))
		self = np_hit_join();
	if (np_unlikely(!self)) {
		__atomic_fetch_add(&site->missed_without_thread, 1, __ATOMIC_RELAXED);
		if (site->otherwise)
			site->otherwise();
		return 0;
	}
	if (np_unlikely(self->depth) && !np_hit_is_left(self, regs->rsp, NULL)) {
		if (!behind)
			miss(self, site);
		return 0;
	}
	__atomic_store_n(&self->depth, regs->rsp, __ATOMIC_RELEASE);
	compiler_barrier();
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	uint64_t rip = regs->rip, rsp = regs->rsp, flags = regs->rflags;
	int skip = 0;
	if (np_likely(list != NULL))
		skip = list->saved >= NP_HIT_SAVED_XMM ? run_with_simd(self, site, list, regs, behind) :
							 run(self, site, list, regs, behind);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
	int pair = skip == NP_HIT_PAIR;
	if (pair)
		skip = 0;
	if (np_likely(!skip && regs->rip == rip && regs->rsp == rsp && !((regs->rflags ^ flags) & RARE_FLAGS) &&
		      !(flags & DIRECTION)))
		return pair ? np_hit_pair(regs, on) : 0;
	/* If rip is unchanged, the instruction's relocated copy at `on` is executed. */
	if (regs->rip == rip && skip != EMULATED)
		regs->rip = on;
	return 1;
}

NP_PATH uint32_t np_hit_in_full(struct np_hit_site *site, struct np_regs *regs, uint64_t on)
{
	return hit(site, regs, on, 0);
}

NP_PATH uint32_t np_hit_behind(struct np_hit_site *site, struct np_regs *regs, uint64_t behind)
{
	return hit(site, regs, behind, 1);
}
