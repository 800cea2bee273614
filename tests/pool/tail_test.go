package pool

import (
	"strings"
	"testing"
)

func TestTailKeepsBeginningAndEnd(t *testing.T) {
	tail := &tail{limit: 16}
	for _, c := range "abcdefghijklmnop" {
		if _, err := tail.Write([]byte(string(c))); err != nil {
			t.Fatal(err)
		}
	}
	if got := tail.String(); got != "abcdefghijklmnop" {
		t.Errorf("%q", got)
	}
	if n, err := tail.Write([]byte("qrs")); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := tail.String(); got != "abcd\n… 3 bytes …\nhijklmnopqrs" {
		t.Errorf("%q", got)
	}
	if n, err := tail.Write([]byte(strings.Repeat("z", 100))); n != 100 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := tail.String(); got != "abcd\n… 103 bytes …\nzzzzzzzzzzzz" {
		t.Errorf("%q", got)
	}
	tail.reset()
	if got := tail.String(); got != "" {
		t.Errorf("%q", got)
	}
}
