#include "textflag.h"

// func getrlimit(l *[2]uint64) (errno uintptr)
TEXT ·getrlimit(SB),NOSPLIT,$0-16
	MOVD	$7, R0 // RLIMIT_NOFILE
	MOVD	l+0(FP), R1
	MOVD	$163, R8 // getrlimit
	SVC
	MOVD	R0, errno+8(FP)
	RET
