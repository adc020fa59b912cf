# 1 "script.d"
# 1 "/usr/include/some.h" 1 3 4
/* What headers say to a compiler of C is read or skipped. */
typedef int function_t(int, void *);
typedef function_t *pointer_t;
extern function_t declared;
static __inline__ __attribute__((__always_inline__)) int twice(int value)
{
	return value * 2 + '}' + "}"[0];
}
extern __inline int thrice(int value) { return value * 3; }
__inline int plain(int value) { return value; }
static const char *const names[] = { "a;", "b" }, other = 0;
extern int renamed(const char *__restrict __format, ...) __asm__("" "other_name") __attribute__((__format__(__printf__, 1, 2)));
_Static_assert(sizeof (int) == 4, "an int (of 4 bytes)");
__extension__ typedef struct { long long quotient; __extension__ union { int low; long all; }; } division_t;
typedef __builtin_va_list va_list;
extern int listed(va_list __arguments, int array[static 4], char *self __attribute__((unused)));
typedef int word_t __attribute__((__mode__(__word__)));
_Noreturn void ends(void);
typedef unsigned long typedef_behind;
const static int unused;
unsigned typedef int late_t;
;
enum wide { HIGHEST = 1u << 31, ALL = 0xffffffffffffffffULL };
struct counter { int counter; char *string; unsigned probe : 3; struct counter *this; void (*import)(int self); };
struct packed { char first; int second; } __attribute__((__packed__));
#pragma pack(push, 2)
struct two { char first; long second; };
#pragma pack(pop)
#pragma GCC visibility push(default)
struct flexible { short length; char data[]; };
typedef _Complex double complex_t;
extern _Float128 quadruple(unsigned __int128 value);
# 2 "script.d" 2

pid$target::f:entry
{
	this->c = (struct counter *)arg0;
	trace(this->c->counter);
	trace(this->c->this->string);
	trace(sizeof (struct packed));
	trace(sizeof (struct two));
	trace(offsetof(struct flexible, data));
	trace(((struct flexible *)arg0)->data[3]);
	trace(sizeof (division_t));
	trace(sizeof (va_list));
	trace(sizeof (word_t));
	trace(sizeof (complex_t));
	trace(HIGHEST);
	trace(ALL);
	trace((*__errno_location()));
}
