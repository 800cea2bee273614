package proto

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// distinct returns a value of which no two fields are equal and none is zero, but the bools, which are all true.
func distinct[T any](t *testing.T) T {
	t.Helper()
	var v T
	n := 0
	var fill func(path string, v reflect.Value)
	fill = func(path string, v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				fill(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fill(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{fmt.Sprint("key ", n): fmt.Sprint("value ", n)}))
		case reflect.String:
			v.SetString(fmt.Sprint("text ", n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Float64:
			v.SetFloat(float64(n) + 0.5)
		case reflect.Int, reflect.Int32, reflect.Int64:
			v.SetInt(int64(n))
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
			v.SetUint(uint64(n))
		default:
			t.Fatalf("%s is a %s, which no message has", path, v.Kind())
		}
	}
	fill(reflect.TypeFor[T]().Name(), reflect.ValueOf(&v).Elem())
	return v
}

// same fails unless a value comes out of a message as it went in.
func same[T any](t *testing.T, want, got T) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got))
}

func sure[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// Every field of every structure has a field of its message for itself, so that one that is added to the contract and
// forgotten here fails, and one that takes another's place too.
func TestNoFieldIsLostOrTakesAnothersPlace(t *testing.T) {
	info := distinct[plugin.Info](t)
	same(t, info, ToInfo(through(t, FromInfo(info), &InfoReply{})))
	request := distinct[plugin.Request](t)
	same(t, request, ToRequest(through(t, FromRequest(request), &Request{})))
	support := distinct[plugin.Support](t)
	same(t, support, sure[plugin.Support](t)(ToSupport(through(t, FromSupport(support), &SupportsReply{}))))
	config := distinct[plugin.OpenConfig](t)
	same(t, config, ToOpenConfig(through(t, FromOpenConfig(1, config), &OpenRequest{})))
	exchange := distinct[plugin.Exchange](t)
	same(t, exchange, ToExchange(through(t, FromExchange(exchange), &Exchange{})))
	images := distinct[[]plugin.Image](t)
	same(t, images, ToImages(through(t, FromImages(images), &ImagesReply{})))

	region := distinct[plugin.Region](t)
	message := through(t, FromRegion(region), &Region{})
	region.Handle.FD = -1 // it travels apart
	same(t, region, sure[plugin.Region](t)(ToRegion(message)))

	plan := distinct[plugin.Plan](t)
	plan.Natives = nil // which cannot travel
	planned := through(t, sure[*Plan](t)(FromPlan(&plan)), &Plan{})
	same(t, &plan, sure[*plugin.Plan](t)(ToPlan(planned)))
}

// A descriptor may have any number, 0 too.
func TestTheMessageSaysWhetherARegionHasADescriptor(t *testing.T) {
	for fd, want := range map[int]bool{-1: false, 0: true, 1: true} {
		require.Equal(t, want, FromRegion(plugin.Region{Handle: plugin.Handle{FD: fd}}).GetHandle().GetHasFd(), fd)
	}
}

// Every code of the table arrives as itself, and every rank that a world may have.
func TestErrorsKeepTheirCodeAndRank(t *testing.T) {
	for code := plugin.OK + 1; code <= plugin.Internal; code++ {
		for _, rank := range []int{-1, 0, plugin.MaxWorld - 1} {
			e := &plugin.Error{Code: code, Rank: rank, Message: "m"}
			require.Equal(t, e, ToError(through(t, FromError(e), &Error{})), "%s, %d", code, rank)
		}
	}
	require.Equal(t, -1, ToError(FromError(fmt.Errorf("plain"))).Rank)
	for _, m := range []*Error{nil, {Rank: -2}, {Rank: plugin.MaxWorld}, {Code: int32(plugin.Internal) + 1, Rank: -1}} {
		e := ToError(m)
		require.Equal(t, plugin.Internal, e.Code, m)
		if m != nil {
			require.Equal(t, -1, e.Rank, m)
		}
	}
}

// What is as large as the contract allows arrives; what has one more is an error of the protocol.
func TestTheLimitsOfMessages(t *testing.T) {
	for what, test := range map[string]struct {
		limit int
		with  func(n int) error
	}{
		"algorithms": {plugin.MaxAlgorithms, func(n int) error {
			_, err := ToSupport(&SupportsReply{Algorithms: make([]*Algorithm, n)})
			return err
		}},
		"handle data": {plugin.MaxHandleData, func(n int) error {
			_, err := ToRegion(&Region{Handle: &Handle{Data: make([]byte, n)}})
			return err
		}},
		"name":      {plugin.MaxName, func(n int) error { return toPlan(&Plan{Algorithm: string(make([]byte, n))}) }},
		"constants": {plugin.MaxRegisters, func(n int) error { return toPlan(&Plan{Consts: make([]int64, n)}) }},
		"refs":      {plugin.MaxRefs, func(n int) error { return toPlan(&Plan{Refs: make([]*Ref, n)}) }},
		"steps":     {plugin.MaxSteps, func(n int) error { return toPlan(&Plan{Steps: make([]*Step, n)}) }},
		"tracks":    {plugin.MaxTracks, func(n int) error { return toPlan(&Plan{Tracks: make([]*Track, n)}) }},
		"kernels": {plugin.MaxSteps, func(n int) error {
			m := &Plan{Kernels: make([]*Kernel, n)}
			for i := range m.Kernels {
				m.Kernels[i] = &Kernel{Grid: make([]uint32, 3), Block: make([]uint32, 3)}
			}
			return toPlan(m)
		}},
		"arguments":   {plugin.MaxRefs, func(n int) error { return toPlan(&Plan{Args: make([]*Arg, n)}) }},
		"temporaries": {plugin.MaxRegisters, func(n int) error { return toPlan(&Plan{Temps: uint32(n)}) }},
		"temporaries of the plugin": {plugin.MaxRegisters, func(n int) error {
			_, err := FromPlan(&plugin.Plan{Temps: n})
			return err
		}},
	} {
		require.NoError(t, test.with(test.limit), what)
		require.ErrorIs(t, test.with(test.limit+1), plugin.Protocol, what)
	}
	_, err := FromPlan(&plugin.Plan{Temps: -1})
	require.ErrorIs(t, err, plugin.Protocol)
	_, err = FromPlan(nil)
	require.ErrorIs(t, err, plugin.Protocol)
}

func toPlan(m *Plan) error {
	_, err := ToPlan(m)
	return err
}

// Of several operands that do not fit, the error is about the first.
func TestTheFirstOperandThatDoesNotFitIsNamed(t *testing.T) {
	wide := &Kernel{Grid: []uint32{1, 1 << 16, 1 << 17}, Block: make([]uint32, 2)}
	err := toPlan(&Plan{Algorithm: "a", Kernels: []*Kernel{wide}, Args: []*Arg{{Ref: 1 << 18}}})
	require.ErrorContains(t, err, "plan a: kernel 0: operand 65536 does not fit 16 bits")
}
