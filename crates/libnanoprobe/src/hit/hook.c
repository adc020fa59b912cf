/* Hooks: the thread continues in the replacement instead of the function that was hit.
 *
 * Most hooks jump to the replacement: then the replacement's caller is the function's caller. In three cases the
 * replacement is called instead (hook.S), because the function's caller relies on more than the ABI promises, or
 * because a return probe by exits must see the return:
 *
 *     the caller knows that the function needs no aligned stack        seen at each hit: gcc's -fipa-stack-alignment
 *     the caller knows which registers the function leaves alone       seen when it is hooked (patch/src/kept.rs): -fipa-ra
 *     the site has a return probe by exits                             seen at each hit
 */
#include "hit.h"
#include "places.h"
#include "raw.h"

#include <sys/syscall.h>
#include <sys/uio.h>

_Static_assert(offsetof(struct np_hit_hook, replacement) == 0 && offsetof(struct np_hit_hook, call) == 8, "HOOK_CALL");
_Static_assert(NP_HOOK_STACK == 512 && NP_KEEPS_VECTORS == 4, "hook.S");

enum { PAGE = 4096 };

NP_PATH int np_hook_hit(struct np_hit_entry *entry, struct np_regs *regs)
{
	const struct np_hit_hook *hook = __atomic_load_n(&entry->data, __ATOMIC_ACQUIRE);
	if (np_unlikely(!hook))
		return 0;
	np_hit_self->counters[entry->index].hits++;
	int is_called = hook->is_called || (regs->rsp + 8) % 16 != 0 ||
			np_retprobe_has_exits(__atomic_load_n(&hook->site->list, __ATOMIC_ACQUIRE));
	regs->rip = (uint64_t)(is_called ? hook->stub : hook->replacement);
	return 1;
}

/* For functions that the library itself replaces, and whose callers rely only on the ABI: the thread continues at
 * entry->data. */
NP_PATH int np_replaced_hit(struct np_hit_entry *entry, struct np_regs *regs)
{
	void *replacement = __atomic_load_n(&entry->data, __ATOMIC_ACQUIRE);
	if (np_unlikely(!replacement))
		return 0;
	np_hit_self->counters[entry->index].hits++;
	regs->rip = (uint64_t)replacement;
	return 1;
}

/* Copies the arguments on the stack, as far as the stack reaches. The stack may end in the page after the return
 * address. So this asks the kernel before it reads beyond the return address's page. */
NP_PATH void np_hook_arguments(char *to, const char *from)
{
	uint64_t behind = ((uint64_t)from + NP_HOOK_STACK - 1) & ~(uint64_t)(PAGE - 1);
	uint64_t bytes = NP_HOOK_STACK;
	int asks = behind > (uint64_t)from - 1 && !(np_hit_sandboxed && *np_hit_sandboxed);
	if (np_unlikely(asks)) {
		bytes = behind - (uint64_t)from;
		struct iovec local = { to + bytes, NP_HOOK_STACK - bytes }, remote = { (void *)behind, NP_HOOK_STACK - bytes };
		long process = np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
		np_raw_call(SYS_process_vm_readv, process, (long)&local, 1, (long)&remote, 1, 0);
	}
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/* Called after the replacement has returned these two values. Stores in `regs` what the caller must find in its
 * registers. Yields which vector registers must be restored. */
NP_PATH uint32_t np_hook_returned(const struct np_hit_hook *hook, struct np_regs *regs, uint64_t rax, uint64_t rdx)
{
	if (!(hook->keeps & NP_KEEPS_RAX))
		regs->rax = rax;
	if (!(hook->keeps & NP_KEEPS_RDX))
		regs->rdx = rdx;
	np_retprobe_hooked(hook->site, regs);
	return hook->keeps;
}
