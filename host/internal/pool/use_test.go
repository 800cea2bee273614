package pool

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
)

// Of two uses by one stream the later one counts, whichever block of the two it was of.
func TestMergedBlocksKeepTheLaterUse(t *testing.T) {
	for _, first := range []int{0, 1} {
		b := newBench(t, false, 2)
		b.add(Granularity)
		blocks := []cuda.Ptr{b.alloc(Granularity/2, 0), b.alloc(Granularity/2, 0)}
		b.release(blocks[first], 0)
		require.NoError(t, b.driver.Synchronize(b.gpu.Context))
		b.shut(0)
		b.release(blocks[1-first], 0)
		require.Zero(t, b.alloc(512, 1), "stream 0 still uses it")
		b.open(0)
		p := b.alloc(512, 1)
		require.Equal(t, blocks[0], p)
		b.release(p, 1)
	}
}

// heldUp is a driver whose first Submit returns when the test lets it.
type heldUp struct {
	cuda.Driver
	calls          atomic.Int32
	recorded, goOn chan bool
}

func (d *heldUp) Submit(c cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	done, capture, err := d.Driver.Submit(c, b)
	if d.calls.Add(1) == 1 {
		close(d.recorded)
		<-d.goOn
	}
	return done, capture, err
}

// Whichever of two threads that free neighbours is held up: the later use counts.
func TestMergedBlocksKeepTheLaterUseOfTwoThreads(t *testing.T) {
	b := newBench(t, false, 2)
	b.add(Granularity)
	blocks := []cuda.Ptr{b.alloc(Granularity/2, 0), b.alloc(Granularity/2, 0)}
	d := &heldUp{Driver: b.driver, recorded: make(chan bool), goOn: make(chan bool)}
	b.pool.gpu.Driver = d
	freed := make(chan bool)
	go func() {
		defer close(freed)
		b.release(blocks[0], 0)
	}()
	<-d.recorded
	require.NoError(t, b.driver.Synchronize(b.gpu.Context))
	b.shut(0)
	b.release(blocks[1], 0)
	close(d.goOn)
	<-freed
	require.Zero(t, b.alloc(512, 1), "stream 0 still uses it")
	b.open(0)
	p := b.alloc(512, 1)
	require.Equal(t, blocks[0], p)
	b.release(p, 1)
}
