#include "textflag.h"

TEXT ·add(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), AX
	ADDQ b+8(FP), AX
	MOVBQSX c+16(FP), CX
	ADDQ CX, AX
	MOVQ AX, ret+24(FP)
	RET
