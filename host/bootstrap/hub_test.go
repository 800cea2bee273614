package bootstrap

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A place can be listened at while others of the process end listening there.
func TestPlaceThatIsLetGoAndTakenAtOnce(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	places := []place{{"tcp", free.Addr().String()}}
	require.NoError(t, free.Close())
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for range 500 {
				h, err := acquireHub(places, slog.New(slog.DiscardHandler))
				if err != nil {
					errs[i] = err
					return
				}
				h.release()
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
}
