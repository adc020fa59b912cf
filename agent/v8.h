/* V8's frames: see v8.c, and v8_code.c for optimised code. */
#ifndef NANOPROBE_V8_H
#define NANOPROBE_V8_H

#include "runtimes.h"

/* A list of the frames that a call in optimised code stands for, which is being read. */
struct np_v8_list {
	u64 bytes;              /* the array of all lists */
	u64 literals;           /* the array of functions */
	u32 end;                /* the end of the bytes */
	u32 at[2];              /* the next byte of the list, and of the other list that it refers to */
	u32 is_other;           /* which of these the operation is of */
	u32 matching;           /* one more than the operations that the other one still has in place of this one's */
	u32 behind;             /* the number of operations that the other one is behind */
	u32 read;               /* the number of bytes that were read; more than the limit: the list is damaged */
	u32 exit;               /* the number of the call's exit */
};

/* A native frame that may be one of JavaScript, and the list of frames that it is the last of. */
struct np_v8_walk {
	const struct np_v8 *v8;
	u64 fp;                 /* its frame pointer */
	u64 pc;                 /* its return address */
	u64 is_made;            /* its code was made at run time */
	u64 shared;             /* the function: its SharedFunctionInfo */
	u64 code;               /* the code object that contains pc, and its kind; 0: the frame runs bytecode */
	u32 kind;
	u32 place;              /* of pc, in that code */
	u64 *frames;
	u64 at;                 /* the index of the frame */
	u64 count, limit;       /* of the list */
	struct np_v8_list list;
};

/* Whether the frame is one of JavaScript's. The parts of the work follow each other, because calls within calls need
 * more stack. */
int np_v8_find_frame(struct np_context *context, const struct np_runtimes *runtimes, struct np_v8_walk *walk);

/* Finds the exit of a call in optimised code, and its list of functions; each yields whether there is one. */
int np_v8_find_exit(struct np_context *context, struct np_v8_walk *walk);
int np_v8_find_list(struct np_context *context, struct np_v8_walk *walk);

/* Puts the functions of the list, innermost first, in the place of the native frame; yields whether it makes sense. */
int np_v8_add_list(struct np_context *context, struct np_v8_walk *walk);

/* Puts the function in the place of the native frame. */
void np_v8_add_frame(struct np_context *context, struct np_v8_walk *walk);

/* The code object whose instructions contain the address; 0: it is not found. */
u64 np_v8_find_code(struct np_context *context, const struct np_v8_walk *walk);

/* A function's frame at a position. */
u64 np_v8_frame(struct np_context *context, const struct np_v8 *v8, u64 shared, u32 position);

/* A field of an object; yields whether it could be read. Fields do not cross words. */
int np_v8_field(struct np_context *context, u64 object, i32 offset, u64 *value);

/* The type of an object; 0: it is none, or is being moved. */
u32 np_v8_type_of(struct np_context *context, const struct np_v8 *v8, u64 object);

/* A small integer lies in the upper half of a word. */
NP_INLINE int np_v8_is_small(u64 value)
{
	return !(value & 0xffffffff);
}

/* Objects are aligned to words, and their addresses have 01 in the lower bits. */
NP_INLINE int np_v8_is_object(u64 value)
{
	return (value & 3) == 1;
}

#endif
