#include "textflag.h"

// func vforkCall(trap, a1, a2 uintptr) (pid, errno uintptr)
//
// The return address lives in the link register, so that the child cannot
// overwrite the parent's.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-40
	MOVD	trap+0(FP), R8
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	ZR, R5
	SVC
	CMN	$4095, R0
	BCS	bad
	MOVD	R0, pid+24(FP)
	MOVD	ZR, errno+32(FP)
	RET
bad:
	NEG	R0, R0
	MOVD	ZR, pid+24(FP)
	MOVD	R0, errno+32(FP)
	RET
