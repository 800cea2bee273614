package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestValues(t *testing.T) {
	var w Writer
	w.U8(1)
	w.Bool(true)
	w.U16(2)
	w.U32(3)
	w.U64(4)
	w.I64(-5)
	w.String("six")
	w.Bytes([]byte{7})
	w.Error(nil)
	e := &plugin.Error{Code: plugin.Timeout, Rank: -1, Message: "late"}
	w.Error(e)
	r := NewReader(w.B)
	got := []any{r.U8(), r.Bool(), r.U16(), r.U32(), r.U64(), r.I64(), r.String(3), r.Bytes(1), r.Error(), r.Error()}
	want := []any{uint8(1), true, uint16(2), uint32(3), uint64(4), int64(-5), "six", []byte{7}, (*plugin.Error)(nil), e}
	if err := r.End(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestViolations(t *testing.T) {
	errorOf := func(code, rank uint32, message string) []byte {
		var w Writer
		w.U32(code)
		w.U32(rank)
		w.String(message)
		return w.B
	}
	for name, c := range map[string]struct {
		b    []byte
		read func(*Reader)
	}{
		"short":         {[]byte{1, 2, 3}, func(r *Reader) { r.U32() }},
		"boolean":       {[]byte{2}, func(r *Reader) { r.Bool() }},
		"string limit":  {[]byte{3, 0, 'a', 'b', 'c'}, func(r *Reader) { _ = r.String(2) }},
		"string length": {[]byte{4, 0, 'a'}, func(r *Reader) { _ = r.String(10) }},
		"bytes limit":   {[]byte{255, 255, 255, 255, 1}, func(r *Reader) { r.Bytes(1 << 30) }},
		"count limit":   {[]byte{3, 0, 1, 2, 3}, func(r *Reader) { r.Count(2, 1) }},
		"count size":    {[]byte{3, 0, 1, 2}, func(r *Reader) { r.Count(9, 1) }},
		"rest":          {[]byte{1}, func(*Reader) {}},
		"error code":    {errorOf(99, 0, ""), func(r *Reader) { r.Error() }},
		"error rank":    {errorOf(1, plugin.MaxWorld, ""), func(r *Reader) { r.Error() }},
		"error message": {errorOf(1, 1, strings.Repeat("x", MaxMessage+1)), func(r *Reader) { r.Error() }},
	} {
		r := NewReader(c.b)
		c.read(r)
		first := r.End()
		if plugin.CodeOf(first) != plugin.Protocol {
			t.Errorf("%s: %v", name, first)
		}
		if r.U64() != 0 || r.String(9) != "" || r.Bytes(9) != nil || r.Count(9, 1) != 0 || r.Error() != nil ||
			r.Err() != first {
			t.Errorf("%s: something was read after the violation", name)
		}
	}
	var w Writer
	w.Error(&plugin.Error{Code: plugin.System, Message: strings.Repeat("x", 2*MaxMessage)})
	if r := NewReader(w.B); len(r.Error().Message) != MaxMessage || r.End() != nil {
		t.Error("a long message was not cut")
	}
	for _, code := range []plugin.Code{-1, plugin.OK, plugin.Internal + 1, 12345} { // as a transport may return them
		var w Writer
		w.Error(&plugin.Error{Code: code, Rank: plugin.MaxWorld, Message: "strange"})
		if r := NewReader(w.B); r.Error().Code != plugin.Internal || r.End() != nil {
			t.Errorf("code %d cannot be read: %v", code, r.Err())
		}
	}
}
