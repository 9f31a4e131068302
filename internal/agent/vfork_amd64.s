#include "textflag.h"

// func vforkCall(trap, a1, a2 uintptr) (pid, errno uintptr)
//
// Parent and child return on the same stack, the child first. What the child
// then calls overwrites the place of this function's return address, so it is
// kept in a register, which the kernel restores for each of the two.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	trap+0(FP), AX
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	XORL	R9, R9
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $-4095
	JCC	bad
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET
bad:
	NEGQ	AX
	MOVQ	$0, pid+24(FP)
	MOVQ	AX, errno+32(FP)
	RET
