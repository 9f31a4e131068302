#include "textflag.h"

// func vforkCall(trap, a1, a2, a5, a6 uintptr) (pid, errno uintptr)
//
// Parent and child return on the same stack, the child first. What the child
// then calls overwrites the place of this function's return address, so it is
// kept in a register, which the kernel restores for each of the two.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-56
	MOVQ	trap+0(FP), AX
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	MOVQ	a5+24(FP), R8
	MOVQ	a6+32(FP), R9
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $-4095
	JCC	bad
	MOVQ	AX, pid+40(FP)
	MOVQ	$0, errno+48(FP)
	RET
bad:
	NEGQ	AX
	MOVQ	$0, pid+40(FP)
	MOVQ	AX, errno+48(FP)
	RET
