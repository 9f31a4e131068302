#include "textflag.h"

// func vforkCall(trap, a1, a2, a5, a6 uintptr) (pid, errno uintptr)
//
// The return address lives in the link register, so that the child cannot
// overwrite the parent's.
TEXT ·vforkCall(SB),NOSPLIT|NOFRAME,$0-56
	MOVD	trap+0(FP), R8
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	a5+24(FP), R4
	MOVD	a6+32(FP), R5
	SVC
	CMN	$4095, R0
	BCS	bad
	MOVD	R0, pid+40(FP)
	MOVD	ZR, errno+48(FP)
	RET
bad:
	NEG	R0, R0
	MOVD	ZR, pid+40(FP)
	MOVD	R0, errno+48(FP)
	RET
