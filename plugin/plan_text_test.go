package plugin

import (
	"strings"
	"testing"
)

func TestPlanText(t *testing.T) {
	b := NewBuilder(Request{Collective: AllReduce, DType: Float32, Op: OpSum, World: 2, Rank: 1}, "test/all")
	zero, one := b.Const(0), b.Const(1)
	scratch, semaphore := b.Region(zero, one, b.Const(4096)), b.Region(zero, zero, zero)
	b.Track(func() {
		n := b.Add(b.Slot(SlotCount), b.RecvCount(1))
		b.Copy(scratch, b.Send(zero), b.Slot(SlotSendBytes))
		b.Loop(n, func(i Reg) {
			b.Signal(semaphore, i, one)
			b.If(i, func() { b.Wait(semaphore, b.Load(semaphore), one) })
		})
		b.Reduce(b.Recv(zero), b.Slot(SlotCount), b.Send(zero), scratch)
		b.SignalAll(semaphore, one)
		b.Barrier(semaphore, scratch)
		b.Store(semaphore, b.Select(n, one, zero))
	})
	b.Track(func() {
		b.LaunchDependent("image", "kernel", b.Const(8), b.Const(512), Address(scratch), Value(b.Slot(SlotCount), 8))
	})
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	text := p.Text()
	t.Log(text)
	for _, want := range []string{
		"plan test/all: all_reduce of float32, op sum, rank 1 of 2: ", ", 2 tracks, 1 kernels, ",
		"track 0\n", "t0 = add count, recv_bytes[1]\n",
		"copy    send_bytes bytes from [send] to [rank 1 region 0+4096]\n",
		"loop    t0 times, t1 counts: the next ",
		"    signal  [rank 0 region 0] = t1, wake rank 1\n",
		"    if      t1: the next 2 steps\n",
		"      load    t2 = [rank 0 region 0]\n",
		"      wait    [rank 0 region 0] >= t2, of rank 1\n",
		"  reduce  count elements of [send], [rank 1 region 0+4096] into [recv]\n",
		"signal  [rank 0 region 0] = 1, wake every rank\n",
		"barrier [rank 0 region 0], counted in [rank 1 region 0+4096]\n",
		" = select t0, 1, 0\n", "store   [rank 0 region 0] = t3\n",
		"track 1\n", "launch  kernel of image image, grid 8×1×1, block 512×1×1, waits in the kernel: &[rank 1 region 0+4096], count\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// Each kind of step, of place and of arithmetic has words of its own.
func TestPlanTextKnowsEveryKind(t *testing.T) {
	p := &Plan{World: 1, Kernels: []Kernel{{Name: "k", Shared: None}}, Refs: []Ref{{Scale: None}, {Scale: None}}}
	seen := map[string]StepKind{}
	for _, kind := range StepKinds() {
		text := p.stepText(&Step{Kind: kind, B: 1})
		if text == kind.String() || seen[text] != 0 {
			t.Errorf("%s is %q, as is %s", kind, text, seen[text])
		}
		seen[text] = kind
	}
}
