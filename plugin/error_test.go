package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever error comes, it has one code; one that was given goes before that of a context's end.
func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, OK},
		{errors.New("x"), Internal},
		{Mismatch, Mismatch},
		{&Error{Code: 99}, Internal},
		{&Error{Code: OK}, Internal},
		{fmt.Errorf("x: %w", Errorf(Unsupported, "y")), Unsupported},
		{context.Canceled, Aborted},
		{fmt.Errorf("x: %w", context.Canceled), Aborted},
		{context.DeadlineExceeded, Timeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), Timeout},
		{Errorf(PluginDied, "x: %w", context.DeadlineExceeded), PluginDied},
		{(*Error)(nil), Internal},
		{fmt.Errorf("x: %w", (*Error)(nil)), Internal},
	} {
		require.Equal(t, c.want, CodeOf(c.err), "%v", c.err)
	}
}

type rail struct{}

func (r *rail) Error() string { return "the rail is lost" }

// A nil pointer that was returned as an error is one, with a text; any other stays as it is.
func TestErrorOf(t *testing.T) {
	for _, err := range []error{nil, &rail{}, Mismatch, &Error{Code: Device, Message: "d"},
		fmt.Errorf("x: %w", &Error{Message: "y"}), errors.New(strings.Repeat("é", MaxText/2))} {
		require.Equal(t, err, ErrorOf(err))
	}
	for err, kind := range map[error]string{(*Error)(nil): "*plugin.Error", (*rail)(nil): "*plugin.rail",
		fmt.Errorf("x: %w", (*Error)(nil)): "*plugin.Error"} {
		require.EqualError(t, ErrorOf(err), "the transport returned a nil "+kind+" as its error")
		require.Equal(t, Internal, CodeOf(ErrorOf(err)))
	}
}

// The text of an error is bounded and printable, and there is one; its code, rank and cause stay.
func TestTextsOfErrors(t *testing.T) {
	for said, want := range map[string]string{
		"":                                     "the transport returned a *plugin.Error without a text as its error",
		" \n":                                  "the transport returned a *plugin.Error without a text as its error",
		"first\nsecond\r\n\x1b[31mred\x00\xff": "first; second; ?[31mred??",
		"a\u009b2J":                            "a?2J",
		strings.Repeat("x", 1<<20):             strings.Repeat("x", MaxText),
		"a" + strings.Repeat("é", MaxText):     "a" + strings.Repeat("é", MaxText/2-1),
	} {
		cause := &Error{Code: Device, Rank: 3, Message: said}
		var err *Error
		require.ErrorAs(t, ErrorOf(cause), &err)
		require.Equal(t, want, err.Error())
		require.Equal(t, 3, err.Rank)
		require.ErrorIs(t, err, Device)
		require.ErrorIs(t, err, cause)
		require.ErrorAs(t, ErrorOf(errors.New(said+"\n")), &err)
		require.Equal(t, strings.Replace(want, "*plugin.Error", "*errors.errorString", 1), err.Error())
		require.Equal(t, -1, err.Rank)
		require.ErrorIs(t, err, Internal)
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a\x00\xffé\x7f" + strings.Repeat("ü", 1000))
	f.Fuzz(func(t *testing.T, s string) {
		if c := Clip(s); len(c) > MaxText || !printable(c) || Clip(c) != c {
			t.Fatalf("%q became %q", s, c)
		}
	})
}

// What a limit explains is a lack of memory, however deep the cause.
func TestSystemError(t *testing.T) {
	for _, limit := range []error{syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC,
		os.NewSyscallError("mmap", syscall.ENOMEM)} {
		err := SystemError(limit, "region %d", 3)
		require.ErrorIs(t, err, OutOfMemory)
		require.ErrorIs(t, err, limit)
		require.EqualError(t, err, "region 3: "+limit.Error())
	}
	err := SystemError(syscall.EFBIG, "ftruncate")
	require.ErrorIs(t, err, OutOfMemory)
	require.ErrorContains(t, err, "ftruncate: file too large; ")
	require.ErrorContains(t, err, "ulimit -f")
	err = SystemError(syscall.EPERM, "%s", "sealing")
	require.ErrorIs(t, err, System)
	require.EqualError(t, err, "sealing: operation not permitted")
}
