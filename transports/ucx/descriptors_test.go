package ucx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

func init() { bodies["descriptors"] = descriptors }

// descriptors has ranks make communicators, and use each, until the descriptors run out of which so many are free.
func descriptors(ctx context.Context, c *host.Communicator, arguments []string) (err error) {
	free, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	low := limit
	low.Cur = uint64(len(open) + free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	memory := make([]float32, 1000)
	for {
		of, err := c.Split(ctx, 0, c.Rank())
		if err != nil {
			return err
		}
		defer of.Close()
		op := host.Operation{Collective: plugin.AllReduce, Count: 1000, DType: plugin.Float32,
			Send: unsafe.Pointer(&memory[0]), Recv: unsafe.Pointer(&memory[0])}
		if err := of.Do(&op); err != nil {
			return fmt.Errorf("a call of a communicator that was made: %w", err)
		}
	}
}

// Ranks that run out of descriptors say so, wherever that is: none takes another for dead, and UCX ends no process.
func TestALackOfDescriptorsIsNamed(t *testing.T) {
	run := newWorld(t, 2)
	for free := 8; free < 60; free += 4 {
		for rank, a := range run("descriptors", fmt.Sprint(free)) {
			assert.Equal(t, plugin.OutOfMemory, a.Code, "%d free, rank %d: %s", free, rank, a.Text)
			assert.Contains(t, a.Text, "ulimit -n")
			assert.NotContains(t, a.Text, "a communicator that was made")
		}
	}
}
