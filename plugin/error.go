package plugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Error makes a Code usable with errors.Is: errors.Is(err, plugin.Timeout).
func (v Code) Error() string { return v.String() }

// Error is the form in which errors cross every boundary of Shunt: a code and one sentence that
// names the rank, the peer, the operation and the cause. Rank is where the
// failure began, or -1.
type Error struct {
	Code    Code
	Rank    int
	Message string // says everything; Cause is not repeated behind it
	Cause   error  // what errors.Is and errors.As see besides Code; may be nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap makes both the code and the cause visible to errors.Is.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Code, e.Cause}
	}
	return []error{e.Code}
}

// Errorf makes an Error that began on no particular rank. A %w operand becomes
// part of the message and stays visible to errors.Is.
func Errorf(code Code, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Rank: -1, Message: wrapped.Error(), Cause: errors.Unwrap(wrapped)}
}

// SystemError makes the Error of a system call that failed with err, which the message, of what was being done, ends
// with: OutOfMemory where a limit explains it, else System.
func SystemError(err error, format string, args ...any) error {
	code, advice := System, ""
	switch {
	case errors.Is(err, syscall.EFBIG):
		code, advice = OutOfMemory, "; the limit on the size of files holds for shared memory too, raise it (ulimit -f)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
		errors.Is(err, syscall.ENOSPC):
		code = OutOfMemory
	}
	return Errorf(code, format+": %w"+advice, append(slices.Clone(args), err)...)
}

// CodeOf returns the code of the first Error in err's tree and OK for nil. Of errors without a code, that of a context
// whose deadline has passed is Timeout, that of one that was canceled Aborted, and every other Internal, as one whose
// code is none of the table.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		if e == nil {
			return Internal
		}
		return e.Code.known()
	}
	var c Code
	if errors.As(err, &c) {
		return c.known()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Aborted
	}
	return Internal
}

// ErrorOf returns an error that a transport has returned, with a text that is fit for a message: as Clip returns it,
// its lines joined. A nil pointer, as of a variable of type *Error that nothing was assigned to, is an error to its
// caller, though it has no text: the result says so, and of an empty text too.
func ErrorOf(err error) error {
	if err == nil {
		return nil
	}
	e := new(Error)
	if !errors.As(err, &e) {
		e.Rank = -1
	} else if e == nil {
		err = e
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return Errorf(Internal, "the transport returned a nil %T as its error", err)
	}
	said := err.Error()
	text := Clip(lineBreaks.Replace(strings.TrimSpace(said)))
	if text == "" {
		text = fmt.Sprintf("the transport returned a %T without a text as its error", err)
	}
	if text == said {
		return err
	}
	return &Error{Code: CodeOf(err), Rank: e.Rank, Message: text, Cause: err}
}

var lineBreaks = strings.NewReplacer("\r\n", "; ", "\n", "; ")

// known returns the code itself, or Internal for one outside the table; an error is
// never OK.
func (v Code) known() Code {
	if v <= OK || v > Internal {
		return Internal
	}
	return v
}

// NativeError returns the failure of a transport's own code, what, with the status that it returned, the rank that it
// named, or -1, and its words, of which unprintable characters become question marks.
func NativeError(what string, status Code, rank int, said string) *Error {
	e := &Error{Code: status.known(), Rank: rank, Message: fmt.Sprintf("the transport's %s failed: %s", what, status)}
	if e.Code != status {
		e.Message = fmt.Sprintf("the transport's %s returned status %d, which is unknown", what, int32(status))
	}
	if said != "" {
		e.Message += ": " + Printable(said)
	}
	return e
}

// Printable returns a text from elsewhere, fit for a message.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
}

// Clip is like Printable, of at most MaxText bytes.
func Clip(text string) string {
	text = Printable(text)
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "")
	}
	return text
}
