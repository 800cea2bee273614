package executor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestDeviceChecksEveryAddress(t *testing.T) {
	type call struct {
		build  func(b *plugin.Builder)
		change func(a *Arguments)
		want   string
		code   plugin.Code
	}
	copies := func(to func(b *plugin.Builder) plugin.RefID, n int64) func(b *plugin.Builder) {
		return func(b *plugin.Builder) { b.Copy(to(b), b.Send(b.Const(0)), b.Const(n)) }
	}
	region := func(id, rank, offset int64) func(b *plugin.Builder) plugin.RefID {
		return func(b *plugin.Builder) plugin.RefID { return b.Region(b.Const(id), b.Const(rank), b.Const(offset)) }
	}
	recv := func(offset int64) func(b *plugin.Builder) plugin.RefID {
		return func(b *plugin.Builder) plugin.RefID { return b.Recv(b.Const(offset)) }
	}
	sized := func(grid, block int64) func(b *plugin.Builder) {
		return func(b *plugin.Builder) { b.Launch("image", "add", b.Const(grid), b.Const(block)) }
	}
	for name, c := range map[string]call{
		"past the receive memory": {copies(recv(16), 1), nil, "1 bytes at offset 16 exceed the receive memory of 16 bytes",
			plugin.Internal},
		"before it": {copies(recv(-1), 1), nil, "1 bytes at offset -1 exceed the receive memory", plugin.Internal},
		"past the send memory": {copies(recv(0), 17), func(a *Arguments) { a.Slots[plugin.SlotRecvBytes] = 64 },
			"17 bytes at offset 0 exceed the send memory of 16 bytes", plugin.Internal},
		"past a region": {copies(region(0, 1, 500), 16), nil,
			"16 bytes at offset 500 exceed region 0 of rank 1 of 512 bytes", plugin.Internal},
		"an address that wraps": {copies(region(0, 1, 1<<62), 16), nil, "exceed region 0 of rank 1", plugin.Internal},
		"no region":             {copies(region(3, 1, 0), 16), nil, "there is no region 3 of rank 1", plugin.Internal},
		"a huge region":         {copies(region(1<<40, 1, 0), 16), nil, "there is no region 1099511627776", plugin.Internal},
		"no rank":               {copies(region(0, 2, 0), 16), nil, "there is no rank 2 in a world of 2", plugin.Internal},
		"a negative rank":       {copies(region(0, -1, 0), 16), nil, "there is no rank -1", plugin.Internal},
		"a negative length":     {copies(recv(0), -1), nil, "a length of -1", plugin.Internal},
		"null memory": {copies(recv(0), 8), func(a *Arguments) { a.Recv = nil },
			"the receive memory is null but has 16 bytes", plugin.InvalidArgument},
		"a negative size": {copies(recv(0), 8), func(a *Arguments) { a.Slots[plugin.SlotSendBytes] = -1 },
			"negative length of send (-1)", plugin.InvalidArgument},
		"short arrays": {copies(recv(0), 8), func(a *Arguments) { a.Arrays = make([]int64, 3) },
			"3 entries of per-rank arrays, want 8", plugin.InvalidArgument},
		"an empty grid": {sized(0, 1), nil, "a grid of 0 blocks of 1 threads", plugin.Internal},
		"a large block": {sized(1, 1025), nil, "a grid of 1 blocks of 1025 threads", plugin.Internal},
		"an argument out of a region": {func(b *plugin.Builder) {
			kernel(b, "add", plugin.Address(region(0, 0, 513)(b)))
		}, nil, "0 bytes at offset 513 exceed region 0 of rank 0 of 512 bytes", plugin.Internal},
		"endless steps": {func(b *plugin.Builder) {
			b.Loop(b.Const(1<<40), func(i plugin.Reg) { b.Add(i, i) })
		}, nil, "the plan takes more than 65536 steps", plugin.Protocol},
		"endless work": {func(b *plugin.Builder) {
			b.Loop(b.Const(1<<40), func(plugin.Reg) { kernel(b, "add", place(b, 0), plugin.Value(b.Const(1), 8)) })
		}, nil, "more than 8192 launches and copies", plugin.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPU(t, 2)
			p := g.load(func(b *plugin.Builder) {
				b.Track(func() {
					kernel(b, "add", place(b, 5), plugin.Value(b.Const(1), 8))
					c.build(b)
				})
			})
			a := &Arguments{Send: pointer(g.words), Recv: pointer(g.words + 16)}
			a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 16, 16
			if c.change != nil {
				c.change(a)
			}
			s := g.stream()
			err := g.device.Run(p, a, s)
			require.ErrorContains(t, err, "executor of rank 0 on CUDA device 0: ")
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, c.code)
			g.synchronize(s)
			require.Zero(t, g.value(5), "nothing was put into the stream")
		})
	}
}

func TestDeviceTakesMemoryOfNoBytesThatIsNull(t *testing.T) {
	g := newGPU(t, 1)
	p := g.load(func(b *plugin.Builder) {
		b.Track(func() {
			b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Slot(plugin.SlotBytes))
			kernel(b, "add", place(b, 0), plugin.Address(b.Send(b.Const(0))))
			kernel(b, "add", place(b, 0), plugin.Value(b.Address(b.Recv(b.Const(0))), 8))
			kernel(b, "add", place(b, 0), plugin.Value(b.Const(7), 8))
		})
	})
	s := g.stream()
	g.run(p, s)
	g.synchronize(s)
	require.Equal(t, uint64(7), g.value(0))
}

func TestDeviceRefusesPlansAtLoad(t *testing.T) {
	g := newGPU(t, 2)
	word := func(b *plugin.Builder) plugin.RefID { return b.Region(b.Const(0), b.Const(0), b.Const(0)) }
	for name, c := range map[string]struct {
		build func(b *plugin.Builder)
		want  string
		code  plugin.Code
	}{
		"load":    {func(b *plugin.Builder) { b.Load(word(b)) }, "(load) cannot be put into a stream", plugin.Unsupported},
		"store":   {func(b *plugin.Builder) { b.Store(word(b), b.Const(1)) }, "(store)", plugin.Unsupported},
		"signal":  {func(b *plugin.Builder) { b.SignalAll(word(b), b.Const(1)) }, "(signal)", plugin.Unsupported},
		"wait":    {func(b *plugin.Builder) { b.Wait(word(b), b.Const(1), b.Const(1)) }, "(wait)", plugin.Unsupported},
		"barrier": {func(b *plugin.Builder) { b.Barrier(word(b), word(b)) }, "(barrier)", plugin.Unsupported},
		"reduce":  {func(b *plugin.Builder) { b.Reduce(word(b), b.Const(1), word(b)) }, "(reduce)", plugin.Unsupported},
		"peer": {func(b *plugin.Builder) {
			b.Copy(b.Recv(b.Const(0)), b.Peer(b.Const(0), b.Const(0), b.Const(0)), b.Const(1))
		}, "copies from a peer's process", plugin.Unsupported},
		"image": {func(b *plugin.Builder) { b.Launch("other", "add", b.Const(1), b.Const(1)) },
			`published no image "other"`, plugin.Protocol},
		"kernel":    {func(b *plugin.Builder) { kernel(b, "nothing") }, "loading kernel nothing", plugin.Device},
		"arguments": {func(b *plugin.Builder) { kernel(b, "add", make513(b)...) }, "longer than 4096 bytes", plugin.Protocol},
		"address": {func(b *plugin.Builder) {
			kernel(b, "add", place(b, 0))
		}, "is an address of 4 bytes", plugin.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			p := devicePlan(t, 2, func(b *plugin.Builder) { b.Track(func() { c.build(b) }) })
			if name == "address" {
				p.Args[0].Bytes = 4
			}
			_, err := g.device.Load(p, 0)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, "executor of rank 0 on CUDA device 0: ")
		})
	}
	_, err := g.device.Load(nil, 0)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	p := devicePlan(t, 2, func(b *plugin.Builder) { b.Track(func() { b.Add(b.Const(1), b.Const(1)) }) })
	_, err = g.device.Load(p, 3)
	require.ErrorContains(t, err, "its base is 3")
	p.Rank = 1
	_, err = g.device.Load(p, 0)
	require.ErrorContains(t, err, "is for rank 1 of 2, this is rank 0 of 2")
	require.ErrorContains(t, g.device.SetRegion(0, 0, 2, g.words, 8), "outside the table")
	require.ErrorContains(t, g.device.SetRegion(0, 0, 1, 0, 8), "has 8 bytes at 0x0")
	require.ErrorContains(t, g.device.AddImages(0, []plugin.Image{{Name: "x"}}), `image "x" has 0 bytes`)
}

func make513(b *plugin.Builder) []plugin.KernelArg {
	var args []plugin.KernelArg
	for range 513 {
		args = append(args, plugin.Value(b.Const(1), 8))
	}
	return args
}

func TestDeviceRegionsGo(t *testing.T) {
	g := newGPU(t, 2)
	p := g.bump(1)
	s := g.stream()
	g.run(p, s)
	g.device.ClearRegion(0, 0)
	require.ErrorContains(t, g.device.Run(p, &Arguments{}, s), "there is no region 0 of rank 0")
	g.device.ClearRegion(1<<16, 0)
	require.NoError(t, g.device.SetRegion(0, 0, 0, g.words+64, 64))
	g.run(p, s)
	g.synchronize(s)
	require.Equal(t, uint64(1), g.value(1))
	require.Equal(t, uint64(1), g.value(9))
}

func TestDeviceAbortEndsWhatWaitsAndRefusesTheRest(t *testing.T) {
	g := newGPU(t, 1)
	s := g.stream()
	hold := g.hold(0)
	graph := g.capture(s, func() { g.run(hold, s) })
	x := g.instantiate(graph)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.run(hold, s)
	g.device.Abort()
	g.synchronize(s)
	require.ErrorIs(t, g.device.Run(hold, &Arguments{}, s), plugin.Aborted)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.synchronize(s)
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
	require.NoError(t, g.device.Close())
	g.device.Abort() // when all is freed
	require.ErrorIs(t, g.device.Run(hold, &Arguments{}, s), plugin.Closed)
	require.ErrorIs(t, g.device.SetRegion(0, 0, 0, g.words, 8), plugin.Closed)
	_, err := g.device.Load(devicePlan(t, 1, func(b *plugin.Builder) { b.Track(func() { kernel(b, "add") }) }), 0)
	require.ErrorIs(t, err, plugin.Closed)
	hold.Free()
	require.NoError(t, g.device.Close(), "twice")
}

func TestDeviceProgramsAreTheirDevicesAndFreedOnce(t *testing.T) {
	g := newGPU(t, 1)
	p := g.bump(1)
	other := g.newDevice(g.Driver, 1)
	require.ErrorIs(t, other.Run(p, &Arguments{}, 0), plugin.InvalidArgument)
	p.Free()
	p.Free()
	require.ErrorIs(t, g.device.Run(p, &Arguments{}, 0), plugin.InvalidArgument)
	require.ErrorIs(t, g.device.RunBatch([]DeviceLaunch{{}}, 0), plugin.InvalidArgument)
	require.NoError(t, g.device.RunBatch(nil, 0))
}

func TestDevicesOfOneGPUShareTheirModules(t *testing.T) {
	g := newGPU(t, 1)
	a := g.listen()
	g.bump(1)
	require.Contains(t, a.heard(), "LoadModule")
	other := g.newDevice(a, 1)
	a.heard()
	_, err := other.Load(devicePlan(t, 1, func(b *plugin.Builder) {
		b.Track(func() {
			kernel(b, "increment",
				place(b, 2))
		})
	}), 0)
	require.NoError(t, err)
	require.NotContains(t, a.heard(), "LoadModule")
	require.NoError(t, other.Close())
	g.run(g.bump(1), 0)
	g.synchronize(0)
	require.Equal(t, uint64(1), g.value(1), "the module is the first one's still")
}

func TestDeviceCallsNativeFunctions(t *testing.T) {
	g := newGPU(t, 1)
	for _, result := range []plugin.Code{plugin.OK, plugin.PeerDied} {
		native, seen := nativetest.New(result)
		plan := devicePlan(t, 1, func(b *plugin.Builder) {
			b.Track(func() {
				kernel(b, "add", place(b, 0), plugin.Value(b.Const(1), 8))
				b.Add(b.Slot(plugin.SlotCount), b.Const(100))
				kernel(b, "add", place(b, 1), plugin.Value(b.Const(1), 8))
			})
		})
		plan.Natives = []plugin.Native{native}
		plan.Steps[1] = plugin.Step{Kind: plugin.StepNative}
		p, err := g.device.Load(plan, 0)
		require.NoError(t, err)
		a := &Arguments{Send: pointer(g.words), Recv: pointer(g.words + 8)}
		a.Slots[plugin.SlotCount], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 8, 8, 8
		g.store(0, 0)
		g.store(1, 0)
		err = g.device.Run(p, a, 0)
		g.synchronize(0)
		require.Equal(t, 1, seen.Calls())
		require.Equal(t, int64(8), seen.Register(int(plugin.SlotRecvBytes)))
		send, recv := seen.Memory()
		require.Equal(t, a.Send, send)
		require.Equal(t, a.Recv, recv)
		require.Equal(t, uint64(1), g.value(0))
		if result == plugin.OK {
			require.NoError(t, err)
			require.Equal(t, uint64(1), g.value(1))
		} else {
			require.ErrorIs(t, err, plugin.PeerDied)
			require.ErrorContains(t, err, "1 of its pieces were")
			require.Zero(t, g.value(1))
		}
		seen.Free()
	}
}

func TestDeviceNamesTheOperationOfABatchThatFailed(t *testing.T) {
	g := newGPU(t, 1)
	good := g.bump(1)
	bad := g.load(func(b *plugin.Builder) {
		b.Track(func() { kernel(b, "increment", plugin.Address(b.Region(b.Const(9), b.Const(0), b.Const(0)))) })
	})
	s := g.stream()
	err := g.device.RunBatch([]DeviceLaunch{{Program: good}, {Program: bad}, {Program: good}}, s)
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, 1, f.Launch)
	require.ErrorContains(t, err, "operation 1 of the group, step 0 of track 0: there is no region 9")
	g.synchronize(s)
	require.Zero(t, g.value(1))

	g.Fail("LaunchKernels", 2, cuda.LaunchFailed)
	err = g.device.RunBatch([]DeviceLaunch{{Program: good}, {Program: good}, {Program: good}, {Program: good}}, s)
	require.ErrorContains(t, err, "operation 3 of 4, plan test, after those before it were put into the stream: cuLaunchKernelEx, piece 3 of 5: CUDA_ERROR_LAUNCH_FAILED")
	require.ErrorContains(t, err, "has broken the device's context")
	require.ErrorIs(t, err, plugin.Device)
	require.Equal(t, cuda.LaunchFailed, cuda.ResultOf(err))
	g.synchronize(s)
	require.Equal(t, uint64(2), g.value(1))
}

// Every call of the driver fails in turn, in a life that uses all of them. The
// error names the call, and nothing is left behind.
func TestDeviceFailsCleanlyAtEveryCall(t *testing.T) {
	methods := []string{
		"Devices", "Retain", "AllocHost", "NewEvent", "LoadModule", "Function", "NewStream", "Submit", "LaunchKernels",
		"Copy", "Record",
		"WaitEvent", "CaptureInfo", "RetainOnGraph", "EventDone", "DestroyEvent", "DestroyStream", "UnloadModule", "FreeHost",
		"Release",
	}
	for _, method := range methods {
		for after := 0; ; after++ {
			if !failAt(t, method, after) {
				require.Positive(t, after, "%s is never called", method)
				break
			}
		}
	}
}

// failAt lives a life with one failure and reports whether it happened.
func failAt(t *testing.T, method string, after int) bool {
	name := fmt.Sprintf("%s, call %d", method, after)
	driver := cudatest.New(cudatest.Options{Kernels: deviceKernels})
	defer driver.Close()
	ctx, err := driver.Retain(0) // the test's own
	require.NoError(t, err)
	words, err := driver.AllocHost(ctx, 512)
	require.NoError(t, err)
	var streams [3]cuda.Stream
	for i := range streams {
		streams[i], err = driver.NewStream(ctx, 0)
		require.NoError(t, err)
	}
	mine := driver.Leaks()

	driver.Fail(method, after, cuda.InvalidHandle)
	var graphs []cuda.Graph
	life := func() (err error) {
		d, err := NewDevice(driver, 0, 0, 1)
		if err != nil {
			return err
		}
		defer func() {
			closed := d.Close()
			if err == nil {
				err = closed
			}
		}()
		if err := d.AddImages(0, testImages); err != nil {
			return err
		}
		if err := d.SetRegion(0, 0, 0, words.Device, 512); err != nil {
			return err
		}
		p, err := d.Load(devicePlan(t, 1, func(b *plugin.Builder) {
			for i := range 3 {
				b.Track(func() {
					kernel(b, "increment", place(b, i))
					b.Copy(b.Region(b.Const(0), b.Const(0), b.Const(int64(64+8*i))),
						b.Region(b.Const(0), b.Const(0), b.Const(int64(8*i))), b.Const(8))
				})
			}
		}), 0)
		if err != nil {
			return err
		}
		for _, s := range []cuda.Stream{streams[0], streams[1], streams[0]} {
			if err := d.Run(p, &Arguments{}, s); err != nil {
				return err
			}
		}
		for range 2 {
			if err := driver.BeginCapture(ctx, streams[2]); err != nil {
				return err
			}
			ran := d.Run(p, &Arguments{}, streams[2])
			g, err := driver.EndCapture(ctx, streams[2])
			if err == nil {
				graphs = append(graphs, g)
			}
			if ran != nil {
				return ran
			}
			if err != nil {
				return err
			}
		}
		return d.Run(p, &Arguments{}, 0)
	}
	err = life()
	for _, g := range graphs {
		require.NoError(t, driver.DestroyGraph(g))
	}
	if collected := Collect(); err == nil {
		err = collected
	}
	require.NoError(t, driver.Synchronize(ctx))
	require.Zero(t, Detached(), name)
	happened := !driver.Pending(method)
	if !happened {
		require.NoError(t, err, name)
		require.Equal(t, mine, driver.Leaks(), name)
		return false
	}
	switch method {
	case "EventDone": // asked again later
	case "DestroyEvent", "DestroyStream", "UnloadModule", "FreeHost", "Release":
		require.ErrorContains(t, err, "CUDA_ERROR_INVALID_HANDLE", name)
		require.NotEmpty(t, driver.Leaks(), "what could not be freed is left, and nothing else went wrong")
		return true
	case "Record":
		if err == nil { // at the end, where it is tried again
			break
		}
		fallthrough
	default:
		require.ErrorContains(t, err, "CUDA_ERROR_INVALID_HANDLE", name)
		require.ErrorContains(t, err, "executor of rank 0 on CUDA device 0: ", name)
	}
	require.Equal(t, mine, driver.Leaks(), name)
	return true
}
