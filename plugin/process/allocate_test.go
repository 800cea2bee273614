package process

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// allocating is a plugin whose calls of Allocate a test performs.
type allocating struct {
	proto.TransportClient
	allocate func(ctx context.Context) error
}

func (a *allocating) Allocate(ctx context.Context, m *proto.AllocateRequest, _ ...grpc.CallOption) (
	*proto.AllocateReply, error) {
	if err := a.allocate(ctx); err != nil {
		return nil, err
	}
	return &proto.AllocateReply{Region: proto.FromRegion(plugin.Region{ID: m.GetId(), Role: plugin.RegionRoleBuffer,
		Memory: plugin.MemoryKindHost, Bytes: m.GetBytes(),
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Bytes: m.GetBytes()}})}, nil
}

func (a *allocating) Free(context.Context, *proto.FreeRequest, ...grpc.CallOption) (*proto.FreeReply, error) {
	return &proto.FreeReply{}, nil
}

// aMemfd returns memory of 64 bytes, and its number.
func aMemfd(t *testing.T) (fd int, inode uint64) {
	t.Helper()
	fd, err := unix.MemfdCreate("buffer", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 64))
	return fd, inodeOf(t, fd)
}

func inodeOf(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return st.Ino
}

// A descriptor that came for a buffer which was given up is closed, and not taken for that of the next buffer of the
// same id.
func TestDescriptorOfAGivenUpBufferIsNotTheNextOnes(t *testing.T) {
	rpc := &allocating{}
	a, other, _ := pair(t)
	c := &Client{rpc: rpc, arrivals: a, life: t.Context(), done: make(chan struct{})}
	e := &endpoint{client: c, id: 1, buffers: map[uint32]plugin.Region{}}
	c.arrivals.expect(e.id)
	defer e.release()
	ctx, cancel := context.WithCancel(t.Context())
	old, _ := aMemfd(t)
	defer unix.Close(old)
	rpc.allocate = func(ctx context.Context) error {
		cancel() // the caller gives it up, and the plugin has made it
		require.NoError(t, sendDescriptor(other, e.id, 20, old))
		return ctx.Err()
	}
	before := descriptors(t, os.Getpid())
	_, err := e.Allocate(ctx, 20, 64)
	require.ErrorIs(t, err, plugin.Aborted)
	require.Equal(t, before, descriptors(t, os.Getpid()), "its memory is kept")

	fd, want := aMemfd(t)
	defer unix.Close(fd)
	rpc.allocate = func(context.Context) error {
		return sendDescriptor(other, e.id, 20, fd)
	}
	r, err := e.Allocate(t.Context(), 20, 64)
	require.NoError(t, err)
	require.Equal(t, want, inodeOf(t, r.Handle.FD), "another buffer's memory")
}
