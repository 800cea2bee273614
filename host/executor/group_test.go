package executor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// TestLanesRunTogether gives every lane a wait that another lane satisfies.
func TestLanesRunTogether(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	// Waits for the word at slot window, then raises the one at slot offset.
	p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		at := func(s plugin.Slot) plugin.RefID { return b.Region(b.Const(testRegion), b.Const(0), b.Slot(s)) }
		b.Track(func() {
			b.Wait(at(plugin.SlotWindow), b.Const(1), b.Const(0))
			b.Signal(at(plugin.SlotOffset), b.Const(1), b.Const(0))
		})
	})
	const n = 20
	setWord(w.regions[0], 8*n, 1)
	var ls []Launch
	for i := range n { // launch i waits for what launch i+1 raises
		l := Launch{Program: p, Lane: 100 - i}
		l.Arguments.Slots[plugin.SlotWindow], l.Arguments.Slots[plugin.SlotOffset] = int64(8*(i+1)), int64(8*i)
		ls = append(ls, l)
	}
	must(t, e.RunGroup(ls, testDeadline))
	if wordAt(w.regions[0], 0) != 1 {
		t.Error("the chain did not reach its end")
	}
}

// TestLaunchesOfALaneRunInOrder logs from two lanes.
func TestLaunchesOfALaneRunInOrder(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	// Appends slot root to the log of the lane at slot offset: a length, then entries.
	p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			region, me := b.Const(testRegion), b.Const(0)
			log := b.Region(region, me, b.Slot(plugin.SlotOffset))
			length := b.Load(log)
			entry := b.Region(region, me, b.Add(b.Slot(plugin.SlotOffset), b.Mul(b.Add(length, b.Const(1)), b.Const(8))))
			b.Store(entry, b.Slot(plugin.SlotRoot))
			b.Store(log, b.Add(length, b.Const(1)))
		})
	})
	nothing := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {})
	var ls []Launch
	for i := range 10 {
		lane := i % 2
		l := Launch{Program: p, Lane: lane}
		l.Arguments.Slots[plugin.SlotRoot], l.Arguments.Slots[plugin.SlotOffset] = int64(i), int64(1024*lane)
		ls = append(ls, l, Launch{Program: nothing, Lane: lane})
	}
	for range 2 {
		clear(w.regions[0])
		must(t, e.RunGroup(ls, testDeadline))
		for lane := range 2 {
			var got []int64
			for i := range int(wordAt(w.regions[0], 1024*lane)) {
				got = append(got, wordAt(w.regions[0], 1024*lane+8+8*i))
			}
			if want := []int64{int64(lane), int64(lane + 2), int64(lane + 4), int64(lane + 6),
				int64(lane + 8)}; !slices.Equal(got, want) {
				t.Errorf("lane %d ran %v, want %v", lane, got, want)
			}
		}
	}
}

func TestGroupsKeepArgumentsApart(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.Send(b.RecvDispl(1)), b.RecvCount(0)) })
	})
	var ls []Launch
	var recvs [][]byte
	for i := range 50 {
		send, recv := []byte{byte(i), byte(i + 1), byte(i + 2)}, make([]byte, 2)
		recvs = append(recvs, recv)
		l := Launch{Program: p, Lane: i % 7, Arguments: *arguments(send, recv, 0, 0)}
		l.Arguments.Arrays = make([]int64, 8)
		l.Arguments.Arrays[plugin.SlotRecvCount(2, 0)-int(plugin.SlotArrays)] = 2
		l.Arguments.Arrays[plugin.SlotRecvDispl(2, 1)-int(plugin.SlotArrays)] = 1
		ls = append(ls, l)
	}
	must(t, e.RunGroup(ls, testDeadline))
	for i, recv := range recvs {
		if recv[0] != byte(i+1) || recv[1] != byte(i+2) {
			t.Errorf("launch %d received %v", i, recv)
		}
	}
	must(t, e.RunGroup(nil, testDeadline))
}

func TestAFailureNamesTheOperationOfTheGroup(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	good := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Store(own(b, 0, 0), b.Const(1)) })
	})
	p := waits(t, e)
	ls := []Launch{{Program: good}, {Program: p}, {Program: good}, {Program: p, Lane: 1}}
	for range 3 { // instances come back after a failure
		err := e.RunGroup(ls, 5*time.Millisecond)
		f := failureOf(t, err)
		if !errors.Is(err, plugin.Timeout) || (f.Launch != 1 && f.Launch != 3) || f.Rank != 1 || f.Step != 1 {
			t.Errorf("got %v (%+v)", err, f)
		}
	}
	setWord(w.regions[1], 0, 1)
	must(t, e.RunGroup(ls, testDeadline))
	if plugin.CodeOf(e.RunGroup([]Launch{{Program: nil}}, 0)) != plugin.InvalidArgument {
		t.Error("a group without a program ran")
	}
}

// TestRanksExchangeInGroups sends to and receives from every peer at once.
func TestRanksExchangeInGroups(t *testing.T) {
	const n = 4
	w := newWorld(t, n, 8192)
	w.run(func(rank int, e *Engine) error {
		// Region of rank r: inbox from s at 128*s: data at +0, arrived at +64, consumed at +72.
		send := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				region, peer := b.Const(testRegion), b.Slot(plugin.SlotRoot)
				inbox := int64(128 * rank)
				b.Wait(b.Region(region, peer, b.Const(inbox+72)), b.Slot(plugin.SlotOffset), peer)
				b.Copy(b.Region(region, peer, b.Const(inbox)), b.Send(b.Const(0)), b.Slot(plugin.SlotBytes))
				b.Signal(b.Region(region, peer, b.Const(inbox+64)), b.Add(b.Slot(plugin.SlotOffset), b.Const(1)), peer)
			})
		})
		recv := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				region, me, peer := b.Const(testRegion), b.Const(int64(rank)), b.Slot(plugin.SlotRoot)
				inbox := b.Mul(peer, b.Const(128))
				next := b.Add(b.Slot(plugin.SlotOffset), b.Const(1))
				b.Wait(b.Region(region, me, b.Add(inbox, b.Const(64))), next, peer)
				b.Copy(b.Recv(b.Const(0)), b.Region(region, me, inbox), b.Slot(plugin.SlotBytes))
				b.Signal(b.Region(region, me, b.Add(inbox, b.Const(72))), next, peer)
			})
		})
		for round := range 100 {
			var ls []Launch
			out, in := []byte{byte(rank), byte(round)}, make([]byte, 2*n)
			for peer := range n {
				s := Launch{Program: send, Lane: 2 * peer, Arguments: *arguments(out, nil, 2, 2)}
				r := Launch{Program: recv, Lane: 2*peer + 1, Arguments: *arguments(nil, in[2*peer:2*peer+2], 2, 2)}
				for _, l := range []*Launch{&s, &r} {
					l.Arguments.Slots[plugin.SlotRoot], l.Arguments.Slots[plugin.SlotOffset] = int64(peer), int64(round)
				}
				ls = append(ls, r, s)
			}
			if err := e.RunGroup(ls, testDeadline); err != nil {
				return err
			}
			for peer := range n {
				if in[2*peer] != byte(peer) || in[2*peer+1] != byte(round) {
					t.Errorf("rank %d round %d: received %v", rank, round, in)
				}
			}
		}
		return nil
	})
}

func BenchmarkRunGroup(b *testing.B) {
	w := newWorld(b, 1, 8192)
	p := load(b, w.engines[0], plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Slot(plugin.SlotBytes)) })
	})
	var ls []Launch
	for i := range 8 {
		ls = append(ls, Launch{Program: p, Lane: i, Arguments: *arguments(make([]byte, 8), make([]byte, 8), 2, 8)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := w.engines[0].RunGroup(ls, 0); err != nil {
			b.Fatal(err)
		}
	}
}
