package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// ownRegions makes a rank's regions, each holding its rank and index.
func ownRegions(t testing.TB, rank, n int) []plugin.Region {
	regions := make([]plugin.Region, n)
	for i := range regions {
		s := segment(t, 4096*int64(i+1))
		m, err := s.Map()
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(m.Slice(), uint64(rank<<32|i))
		m.Close()
		regions[i] = s.Region()
		regions[i].ID = uint32(i)
	}
	return regions
}

// check maps everything that an exchange gave and looks at whose it is.
func check(all [][]plugin.Region, counts []int) error {
	if len(all) != len(counts) {
		return fmt.Errorf("regions of %d ranks", len(all))
	}
	for rank, regions := range all {
		if len(regions) != counts[rank] {
			return fmt.Errorf("%d regions of rank %d, want %d", len(regions), rank, counts[rank])
		}
		for i, r := range regions {
			m, err := MapHandle(r.Handle)
			if err != nil {
				return err
			}
			got := binary.LittleEndian.Uint64(m.Slice())
			bytes := m.Bytes()
			if err := m.Close(); err != nil {
				return err
			}
			if got != uint64(rank<<32|i) || bytes != 4096*int64(i+1) {
				return fmt.Errorf("region %d of rank %d holds %x in %d bytes", i, rank, got, bytes)
			}
		}
	}
	return nil
}

func TestExchange(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("world=%d", n), func(t *testing.T) {
			all := shares(t, n)
			mine := make([][]plugin.Region, n)
			counts := make([]int, n)
			for rank := range n {
				counts[rank] = rank * 2 % 5
				mine[rank] = ownRegions(t, rank, counts[rank])
			}
			before := openFiles(t)
			for round := range 3 {
				noErrors(t, each(n, func(rank int) error {
					got, err := all[rank].Exchange(t.Context(), "regions", mine[rank])
					if err != nil {
						return err
					}
					defer CloseAll(got)
					for i, r := range got[rank] {
						if r.Handle.FD == mine[rank][i].Handle.FD {
							return errors.New("the own descriptor came back itself instead of a copy")
						}
					}
					return check(got, counts)
				}))
				for rank, s := range all {
					// A rank never fetches its own handles, and each other rank's once.
					want := 0
					if counts[rank] > 0 {
						want = (round + 1) * (n - 1)
					}
					s.mu.Lock()
					if s.served != want {
						t.Errorf("rank %d served %d requests, want %d", rank, s.served, want)
					}
					s.mu.Unlock()
				}
			}
			leaveNothing(t, before, all)
		})
	}
}

// Rule 9: publish all, agree, fetch all. Two ranks that exchange in differing
// order must not wait for each other. It fails when Exchange fetches before
// the gather (something is not published yet) and when it withdraws its descriptors
// before the agreement (the slower rank finds nothing).
func TestRule09BatchedHandleExchange(t *testing.T) {
	const tags = 8
	all := shares(t, 2)
	published := func(tag string) error {
		for rank, s := range all {
			s.mu.Lock()
			o := s.tagged[tag]
			s.mu.Unlock()
			if o == nil {
				return fmt.Errorf("rank %d has nothing published under %q while a peer may fetch", rank, tag)
			}
		}
		return nil
	}
	fetched := map[string]chan struct{}{}
	for i := range tags {
		fetched[fmt.Sprint("tag ", i)] = make(chan struct{})
	}
	all[1].beforeFetch = func(tag string) {
		if err := published(tag); err != nil {
			t.Error(err)
		}
	}
	all[1].afterFetch = func(tag string) { close(fetched[tag]) }
	all[0].beforeFetch = func(tag string) {
		// Rank 1 is far ahead: it has fetched everything of this tag.
		select {
		case <-fetched[tag]:
		case <-time.After(10 * time.Second):
			t.Errorf("rank 1 does not get ahead of rank 0 with %q", tag)
		}
		if err := published(tag); err != nil {
			t.Error(err)
		}
	}
	mine := [][]plugin.Region{ownRegions(t, 0, 2), ownRegions(t, 1, 2)}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	noErrors(t, each(2, func(rank int) error {
		errs := make([]error, tags)
		var wg sync.WaitGroup
		started := make(chan struct{})
		for i := range tags {
			tag := i
			if rank == 1 {
				tag = tags - 1 - i
			}
			wg.Go(func() {
				<-started
				got, err := all[rank].Exchange(ctx, fmt.Sprint("tag ", tag), mine[rank])
				if err == nil {
					err = check(got, []int{2, 2})
				}
				CloseAll(got)
				errs[i] = err
			})
		}
		close(started)
		wg.Wait()
		return errors.Join(errs...)
	}))
}

// Rule 10: what a rank has or lacks must not make it skip a step that others
// take. It fails (by timeout) when a rank with nothing to publish or nothing to
// fetch leaves out the agreement.
func TestRule10NothingToShareStillTakesPart(t *testing.T) {
	all := shares(t, 3)
	counts := []int{0, 3, 0}
	mine := [][]plugin.Region{nil, ownRegions(t, 1, 3), nil}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	// Rank 1 is the only one that finds a fault, after the gather; all ranks return it.
	good := mine[1][0].Handle.FD
	for _, fault := range []bool{false, true, false} {
		all[1].beforeFetch = nil
		if fault {
			all[1].beforeFetch = func(string) { mine[1][0].Handle.FD = 1 << 20 }
		}
		errs := each(3, func(rank int) error {
			got, err := all[rank].Exchange(ctx, "some", mine[rank])
			if err == nil {
				err = check(got, counts)
			}
			CloseAll(got)
			return err
		})
		mine[1][0].Handle.FD = good
		if !fault {
			noErrors(t, errs)
			continue
		}
		for rank, err := range errs {
			if plugin.CodeOf(err) != plugin.System || !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

func TestExchangeFailsAlikeOnAllRanks(t *testing.T) {
	all := shares(t, 3)
	before := openFiles(t)
	for name, c := range map[string]struct {
		bad  func(*plugin.Region)
		code plugin.Code
		text string
	}{
		"closed descriptor": {func(r *plugin.Region) { r.Handle.FD = 1 << 20 }, plugin.System, "rank 1: exchange"},
		"negative size":     {func(r *plugin.Region) { r.Bytes = -5 }, plugin.InvalidArgument, "-5 bytes"},
		"beyond its handle": {func(r *plugin.Region) { r.Bytes = 1 << 40 }, plugin.InvalidArgument, "region 0"},
		"no generation":     {func(r *plugin.Region) { r.Handle.Generation = 0 }, plugin.InvalidArgument, "generation"},
	} {
		errs := each(3, func(rank int) error {
			s, err := NewSegment("x", 4096)
			if err != nil {
				return err
			}
			defer s.CloseFD()
			r := s.Region()
			if rank == 1 {
				c.bad(&r)
			}
			_, err = all[rank].Exchange(t.Context(), "bad", []plugin.Region{r})
			return err
		})
		for rank, err := range errs {
			if plugin.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || err.Error() != errs[0].Error() {
				t.Errorf("%s, rank %d: %v (%v)", name, rank, err, plugin.CodeOf(err))
			}
		}
	}
	leaveNothing(t, before, all)
}

// SHUNT_HOST_ID may say that machines are one host, which shares memory: the error names the ranks.
func TestMachinesThatAreNoHost(t *testing.T) {
	s := shares(t, 3)[0]
	if err := s.checkHosts(); err != nil {
		t.Error(err)
	}
	s.peers[2].kernel = "elsewhere"
	err := s.checkHosts()
	if plugin.CodeOf(err) != plugin.Mismatch || !strings.HasPrefix(err.Error(), "rank 0 (pid ") ||
		!strings.Contains(err.Error(), " and rank 2 (pid ") || !strings.Contains(err.Error(), "have the same SHUNT_HOST_ID") {
		t.Error(err)
	}
	s.peers[2].hostID = "elsewhere"
	if err := s.checkHosts(); err != nil {
		t.Error(err)
	}
}

func TestRanksOfOtherHostsGetNoDescriptors(t *testing.T) {
	all := shares(t, 2)
	all[0].peers[1].hostID, all[1].peers[0].hostID = "elsewhere", "elsewhere"
	mine := [][]plugin.Region{ownRegions(t, 0, 1), ownRegions(t, 1, 1)}
	noErrors(t, each(2, func(rank int) error {
		got, err := all[rank].Exchange(t.Context(), "far", mine[rank])
		if err != nil {
			return err
		}
		defer CloseAll(got)
		if r := got[1-rank][0]; r.Handle.FD != -1 || r.Bytes != 4096 {
			return fmt.Errorf("%+v", r)
		}
		if _, err := MapHandle(got[1-rank][0].Handle); plugin.CodeOf(err) != plugin.Unsupported ||
			!strings.Contains(err.Error(), "another host") {
			return err
		}
		return nil
	}))
}

// Strangers of the same user get nothing, and do not stand in the way.
func TestStrangersAreRefused(t *testing.T) {
	all := shares(t, 2)
	mine := [][]plugin.Region{ownRegions(t, 0, 1), ownRegions(t, 1, 1)}
	for range 20 { // say nothing
		conn, err := net.Dial("unix", all[0].peers[0].socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	attack := func() error {
		conn, err := net.Dial("unix", all[0].peers[0].socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		nonce := make([]byte, fetchNonce)
		if _, err := io.ReadFull(conn, nonce); err != nil {
			return err
		}
		if _, err := conn.Write(encodeRequest([]byte("a guess"), nonce, make([]byte, fetchNonce), "regions")); err != nil {
			return err
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil || n > 0 {
			return errors.New("a stranger got a reply")
		}
		return nil
	}
	noErrors(t, each(2, func(rank int) error {
		if rank == 0 {
			all[0].afterFetch = func(string) {
				if err := attack(); err != nil {
					t.Error(err)
				}
			}
		}
		got, err := all[rank].Exchange(t.Context(), "regions", mine[rank])
		CloseAll(got)
		return err
	}))
}

func TestTooManyOpenFilesIsNamed(t *testing.T) {
	all := shares(t, 2)
	mine := [][]plugin.Region{ownRegions(t, 0, 4), ownRegions(t, 1, 4)}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(openFiles(t) + 12) // enough to publish, too few to fetch
	all[0].beforeFetch = func(string) { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &low) }
	errs := each(2, func(rank int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := all[rank].Exchange(ctx, "many", mine[rank])
		CloseAll(got)
		return err
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for rank, err := range errs {
		if err == nil || err.Error() != errs[0].Error() {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	all[0].beforeFetch = nil
	noErrors(t, each(2, func(rank int) error {
		got, err := all[rank].Exchange(t.Context(), "many", mine[rank])
		CloseAll(got)
		return err
	}))
}

// A rank that is stopped between connecting and asking, as by SIGSTOP, finds its connection closed when it continues:
// the peer's server waits for no rank that long. It asks again, as the peer lives.
func TestWhoAsksTooLateAsksAgain(t *testing.T) {
	all := shares(t, 2)
	mine := [][]plugin.Region{ownRegions(t, 0, 1), ownRegions(t, 1, 2)}
	requests := 0
	all[0].beforeRequest = func(conn *net.UnixConn) {
		if requests++; requests > 1 {
			return
		}
		raw, err := conn.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1)
			})
		}
		if err != nil {
			t.Error(err)
		}
	}
	noErrors(t, each(2, func(rank int) error {
		got, err := all[rank].Exchange(t.Context(), "regions", mine[rank])
		defer CloseAll(got)
		if err != nil {
			return err
		}
		return check(got, []int{1, 2})
	}))
	if requests != 2 {
		t.Errorf("%d requests, want one that came too late and another", requests)
	}
}

// What no peer maps is not exchanged, whichever rank says so.
func TestLocalRegionsAreNotShared(t *testing.T) {
	mine := ownRegions(t, 0, 1)
	mine[0].Role = plugin.RegionRoleLocal
	if _, err := decodeAnnouncement(announcement{Regions: mine}.encode()); plugin.CodeOf(err) != plugin.Protocol ||
		!strings.Contains(err.Error(), "region 0 has role local, which no peer maps") {
		t.Error(err)
	}
	if _, err := shares(t, 1)[0].Exchange(t.Context(), "local", mine); err == nil ||
		!strings.Contains(err.Error(), "region 0 has role local, which no peer maps") {
		t.Error(err)
	}
}
