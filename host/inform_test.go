package host_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// journal is a log that ranks write at once.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

// lines returns the lines that say the given thing.
func (j *journal) lines(what string) (found []string) {
	for line := range strings.Lines(j.b.String()) {
		if strings.Contains(line, `msg="`+what+`"`) {
			found = append(found, line)
		}
	}
	return found
}

// At level info a rank says what it loaded and what each communicator runs on, once,
// however much is called then.
func TestInfoSaysWhatIsLoadedAndChosen(t *testing.T) {
	var log journal
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	require.NoError(t, errors.Join(worldErrors(t, 2, func(rank int, o *host.Options) {
		if rank == 1 { // alone in asking for it
			o.Logger = logger
		}
	}, func(c *host.Communicator) error {
		part, err := c.Split(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		defer part.Close()
		x := []float32{1, 2}
		for range 3 {
			if err := part.AllReduce(at(x), at(x), 2, plugin.Float32, plugin.OpSum, nil); err != nil {
				return err
			}
		}
		return nil
	})...))
	loaded := log.lines("transport loaded")
	require.Len(t, loaded, 1, log.b.String())
	for _, want := range []string{"transport=shm", "version=", "carrier=builtin", "from=shm"} {
		require.Contains(t, loaded[0], want)
	}
	made := log.lines("communicator made")
	require.Len(t, made, 2, log.b.String())
	for i, want := range []string{"communicator=world", "communicator=world/"} {
		require.Contains(t, made[i], want)
		for _, want := range []string{"rank=1", "world=2", "memory=host", "transports=shm", `all_reduce="shm/`, "all_to_all=",
			"send="} {
			require.Contains(t, made[i], want)
		}
	}
	require.LessOrEqual(t, strings.Count(log.b.String(), "\n"), 4, log.b.String())
}

// On GPUs the line of a communicator says which one it is.
func TestInfoSaysWhichGPU(t *testing.T) {
	var log journal
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), func(rank int, o *host.Options) {
		if rank == 1 {
			o.Logger = logger
		}
	}, func(*rank) error { return nil })...))
	made := log.lines("communicator made")
	require.Len(t, made, 1, log.b.String())
	for _, want := range []string{"communicator=world", "rank=1", "memory=cuda", "device=1", "gpu=", "bus=",
		"device_bytes=", "all_reduce="} {
		require.Contains(t, made[0], want)
	}
}
