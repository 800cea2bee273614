#include "textflag.h"

// On this processor stores become visible in the order in which they stand
// here, which is what the marks below rely on.

// func Write(record, flight, call, values, next unsafe.Pointer, lines uint64) uint64
TEXT ·Write(SB), NOSPLIT, $0-56
	MOVQ next+32(FP), AX
	MOVQ lines+40(FP), CX
	JMP  test

fetch:
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	DECQ CX

test:
	TESTQ CX, CX
	JNZ   fetch
	MOVQ record+0(FP), DI
	MOVQ flight+8(FP), SI
	MOVQ call+16(FP), R13
	MOVQ values+24(FP), BX
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+48(FP)
	MOVQ 0(BX), R8  // seq
	MOVQ 8(BX), R9  // what
	MOVQ 16(BX), R10 // how
	MOVQ 24(BX), R11 // count
	MOVQ 32(BX), R12 // number

	// struct sx_record. An odd version: the fields change.
	MOVQ 0(DI), CX
	ORQ  $1, CX
	MOVQ CX, 0(DI)
	MOVQ R8, 8(DI)
	MOVQ R9, 16(DI)
	MOVQ R10, 24(DI)
	MOVQ R11, 32(DI)
	MOVQ R8, 40(DI) // ended
	INCQ CX
	MOVQ CX, 0(DI)

	TESTQ R13, R13
	JZ    recorder

	// struct sx_call. Mark 0: the entry is in change.
	MOVQ 40(BX), R8
	MOVQ $0, 0(R13)
	MOVQ R9, 8(R13)
	MOVQ R10, 16(R13)
	MOVQ R11, 24(R13)
	MOVQ R8, 0(R13)

recorder:
	TESTQ SI, SI
	JZ    done

	// struct sx_flight. Number 0: the entry is in change.
	MOVQ $0, 0(SI)
	MOVQ R9, 8(SI)
	MOVQ R10, 16(SI)
	MOVQ R11, 24(SI)
	MOVQ AX, 32(SI) // begin
	MOVQ AX, 40(SI) // end
	MOVQ $0, 48(SI) // reason: fine
	MOVQ R12, 0(SI)

done:
	RET
