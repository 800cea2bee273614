package cuda

import (
	"errors"
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// Result is a CUresult. Values are the driver's.
type Result int

// Results that callers tell apart.
const (
	Success            Result = 0
	InvalidValue       Result = 1
	OutOfMemory        Result = 2
	NotInitialized     Result = 3
	Deinitialized      Result = 4  // the process is ending
	StubLibrary        Result = 34 // the library is the toolkit's, for linking
	NoDevice           Result = 100
	InvalidDevice      Result = 101
	InvalidImage       Result = 200
	InvalidContext     Result = 201
	NoBinaryForGPU     Result = 209
	InvalidHandle      Result = 400
	NotFound           Result = 500
	NotReady           Result = 600
	ECCUncorrectable   Result = 214
	LinkUncorrectable  Result = 220
	IllegalAddress     Result = 700
	LaunchTimeout      Result = 702
	PeerAccessEnabled  Result = 704
	ContextDestroyed   Result = 709
	Assert             Result = 710
	HardwareStackError Result = 714
	IllegalInstruction Result = 715
	MisalignedAddress  Result = 716
	InvalidSpace       Result = 717
	InvalidCounter     Result = 718
	LaunchFailed       Result = 719
	NotPermitted       Result = 800
	NotSupported       Result = 801
	SystemNotReady     Result = 802
	DriverMismatch     Result = 803 // the kernel runs another version of the driver
	CompatNotSupported Result = 804 // the package for older drivers does not serve the GPUs
	CaptureUnsupported Result = 900
	CaptureInvalid     Result = 901
	CaptureMerge       Result = 902   // a dependency between two captures
	CaptureUnjoined    Result = 904   // a branch of a capture that was not joined again
	CaptureIsolation   Result = 905   // a dependency on what is outside the capture
	CapturedEvent      Result = 907   // an event that was last recorded in a capture
	Unknown            Result = 999   // what no other result says
	resultMissing      Result = -1000 // and below: a function that the library lacks
)

// Error is a failed call of the driver.
type Error struct {
	Call   string // what was called: "cuMemCreate of 2097152 bytes on device 0"
	Result Result
	Name   string // CUDA_ERROR_OUT_OF_MEMORY
	Text   string // out of memory
}

// Error says what was called and what came back.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: CUDA error %d", e.Call, int(e.Result))
	}
	return fmt.Sprintf("%s: %s (%s)", e.Call, e.Name, e.Text)
}

// code returns the code of a result for callers that do not know CUDA.
func (r Result) code() plugin.Code {
	switch r {
	case OutOfMemory:
		return plugin.OutOfMemory
	case InvalidValue, InvalidHandle, InvalidDevice:
		return plugin.InvalidArgument
	case NotSupported:
		return plugin.Unsupported
	}
	return plugin.Device
}

// Sticky reports whether the result means that the context is broken: every
// later call in it fails as well.
func (r Result) Sticky() bool {
	switch r {
	case ECCUncorrectable, LinkUncorrectable, IllegalAddress, LaunchTimeout, ContextDestroyed, Assert, HardwareStackError,
		IllegalInstruction, MisalignedAddress, InvalidSpace, InvalidCounter, LaunchFailed:
		return true
	}
	return false
}

// Wrap makes the error of a failed call, for implementations of Driver.
func Wrap(e *Error) error { return plugin.Errorf(e.Result.code(), "%w", e) }

// ResultOf returns the driver's result in err's tree; Success if there is none.
func ResultOf(err error) Result {
	var e *Error
	if errors.As(err, &e) {
		return e.Result
	}
	return Success
}
