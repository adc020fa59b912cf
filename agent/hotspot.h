/* Frames of code that HotSpot has made: see hotspot.c. */
#ifndef NANOPROBE_HOTSPOT_H
#define NANOPROBE_HOTSPOT_H

#include "runtimes.h"
#include "unwind.h"

enum np_hotspot_kind { NP_HOTSPOT_INTERPRETED, NP_HOTSPOT_COMPILED, NP_HOTSPOT_WRAPPER, NP_HOTSPOT_STUB };

/* The code that the code cache holds at an address. */
struct np_hotspot_code {
	u64 kind;
	u64 blob;               /* 0: it is not known which one */
	u64 frame_bytes;        /* with the return address; 0: the frame has no fixed size */
	i64 scope;              /* the description of the function at the pc, or of the function around it; 0: none */
	u64 object;             /* the method of the next frame; or the address of the blob's name */
	u64 position;           /* the place in that method's bytecodes; before that, the place in the code */
};

/* Where HotSpot's code lies; 0: the process has no HotSpot, or it is just starting. */
const struct np_hotspot *np_find_hotspot(const struct np_control *control, const struct np_runtimes *runtimes);

/* The stack that is being walked, and the list of its frames. All is in one place, so that calls need little stack. */
struct np_hotspot_walk {
	const struct np_runtimes *runtimes;
	const struct np_hotspot *hotspot; /* 0: there is none */
	u64 *frames;
	u64 count, limit;
	struct np_cursor cursor;
	union {
		struct np_hotspot_code code;
		struct np_native_frame native;
	};
};

/* Looks the cursor's address up in the code cache; yields whether it is there. */
int np_hotspot_find(struct np_context *context, struct np_hotspot_walk *walk);

/* Finds what describes a frame of compiled code, by the place in that code. Two functions need less stack than one. */
void np_hotspot_find_place(struct np_context *context, struct np_hotspot_walk *walk);
void np_hotspot_find_scope(struct np_context *context, struct np_hotspot_walk *walk);

/* Reads the next frame of Java that the native frame at the cursor stands for, innermost first; yields its kind, enum
 * np_runtime_kind. There are more as long as the code has a scope. */
u64 np_hotspot_next(struct np_context *context, struct np_hotspot_walk *walk);

/* Adds that frame to the list. */
void np_hotspot_add(struct np_context *context, struct np_hotspot_walk *walk, u64 kind);

/* Goes to the caller of a frame of the code cache. */
int np_hotspot_step(struct np_context *context, struct np_hotspot_walk *walk);

#endif
