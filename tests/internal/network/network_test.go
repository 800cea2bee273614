package network

import (
	"flag"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

var (
	long = flag.Bool("network.long", false, "try every combination")
	seed = flag.Uint64("network.seed", uint64(time.Now().UnixNano()), "decides the moments of faults")
)

// Ranks that are silent for ten heartbeats count as dead. Where only one of two directions is cut, the ranks that hear
// the others wait until these have given up; then a second for proof of their end. The rest is for a busy machine.
const (
	heartbeat = 200 * time.Millisecond
	silence   = 10 * heartbeat
	soon      = 2*silence + time.Second + 5*time.Second
)

// busyKernel is the time for an answer about an interface from which UCX may take seconds to close.
const busyKernel = 5 * time.Millisecond

var quick = []string{"SHUNT_HEARTBEAT=" + heartbeat.String(), "SHUNT_TIMEOUT=15s"}

// outage is a way in which a host is lost to others.
type outage struct {
	name    string
	out, in Condition
	down    bool
}

var cut = []outage{
	{name: "silent", out: Condition{Cut: true}, in: Condition{Cut: true}},
	{name: "mute", out: Condition{Cut: true}},
	{name: "deaf", in: Condition{Cut: true}},
	{name: "down", down: true},
}

// layouts are the hosts of ranks, and which may continue without host i.
var layouts = []struct {
	name   string
	where  []int
	goesOn []string
}{
	{"2+2", []int{0, 0, 1, 1}, []string{"11", "11"}},
	{"1+1+1", []int{0, 1, 2}, []string{"110", "101"}},
	{"1+2", []int{0, 1, 1}, []string{"110", "110"}},
	{"2+2+2", []int{0, 0, 1, 1, 2, 2}, []string{"111100", "110011"}},
}

// short are the outages of a short run.
var short = []string{"2+2/silent/host 0/calls", "1+1+1/silent/host 0/whole", "1+1+1/mute/host 1/split",
	"1+2/deaf/host 1/calls"}

// TestOutages loses a host while ranks call: for a while, of which only a clock may show anything, and for good, where
// all end with an error within seconds and one world at most continues.
func TestOutages(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		for _, c := range cut {
			for host := range 2 {
				for _, does := range []string{"calls", "whole", "split", "subset"} {
					name := fmt.Sprintf("%s/%s/host %d/%s", l.name, c.name, host, does)
					if !*long && !slices.Contains(short, name) {
						continue
					}
					p := Program{Bytes: 40000, Shrink: true, Does: does, Pause: 5 * time.Millisecond}
					// Connections cannot be made while an interface is down, which is an error at once.
					if (*long && (!c.down || does == "calls")) || name == short[0] {
						t.Run(name+"/for a while", func(t *testing.T) {
							t.Parallel()
							w := running(t, l.where, p)
							c.begin(t, w.hosts[host])
							<-time.After(3 * heartbeat) // the outage
							c.end(t, w.hosts[host])
							w.stop()
							w.all(20*time.Second, "ended")
							w.unharmed()
						})
					}
					t.Run(name+"/for good", func(t *testing.T) {
						t.Parallel()
						w := running(t, l.where, p)
						c.begin(t, w.hosts[host])
						w.lost(l.where, host, l.goesOn[host])
					})
				}
			}
		}
	}
}

// TestLongOutage: a network that is away for three quarters of the time after which ranks count as dead loses no rank.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	if reason := noLimit(); reason != "" {
		t.Skip(reason)
	}
	away(t, lan(t, 2), 7800*time.Millisecond)
}

// TestOutageWithFewAttempts: a kernel that is set to give up after few attempts to send gives up no sooner than for
// other programs.
func TestOutageWithFewAttempts(t *testing.T) {
	t.Parallel()
	hosts := lan(t, 2)
	for _, h := range hosts {
		h.Do(t, "sysctl -qw net.ipv4.tcp_retries2=5")
	}
	away(t, hosts, 5500*time.Millisecond)
}

// away takes the network from ranks of two hosts for a while, which none may notice; ten seconds would be too long.
func away(t *testing.T, hosts []*Host, outage time.Duration) {
	w := start(t, hosts, []int{0, 0, 1, 1}, Program{Bytes: 4000, Pause: 5 * time.Millisecond}, "SHUNT_HEARTBEAT=1s")
	w.all(20*time.Second, "runs")
	cut[0].begin(t, w.hosts[1])
	<-time.After(outage)
	cut[0].end(t, w.hosts[1])
	w.stop()
	w.all(30*time.Second, "ended")
	w.unharmed()
}

// noLimit returns why the kernel's longest wait before it sends again cannot be set; "" if it can.
func noLimit() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		_, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS)
	}
	if err != nil {
		return fmt.Sprintf("TCP_RTO_MAX_MS, of Linux 6.15: %v", err)
	}
	return ""
}

// running starts ranks that call.
func running(t *testing.T, where []int, p Program) *world {
	t.Helper()
	w := start(t, lan(t, where[len(where)-1]+1), where, p, quick...)
	w.all(20*time.Second, "runs")
	return w
}

func (o outage) begin(t *testing.T, h *Host) {
	t.Helper()
	h.Links[0].Set(o.out, o.in)
	if o.down {
		h.Do(t, "ip link set eth0 down")
	}
}

func (o outage) end(t *testing.T, h *Host) {
	t.Helper()
	h.Links[0].Set(Condition{}, Condition{})
	if o.down {
		h.Do(t, "ip link set eth0 up")
	}
}

// lost checks what becomes of ranks that a host is lost to: those of goesOn, a number of a bit a rank, continue
// together.
func (w *world) lost(where []int, host int, goesOn string) {
	w.t.Helper()
	for rank, p := range w.ranks {
		e := p.await(soon, "error", "ended")
		if e == nil || e.What != "error" {
			w.t.Errorf("rank %d has no error within %s: %+v", rank, soon, e)
			continue
		}
		assert.Equal(w.t, "peer_died", e.Code, "rank %d: %s", rank, e.Text)
		assert.Contains(w.t, e.Text, " on host node", "rank %d", rank)
		assert.NotContains(w.t, e.Text, "has not ended", "rank %d", rank)
		if e.Of >= 0 && e.Phase == "all_reduce" { // else it may be a number of a part
			assert.NotEqual(w.t, where[rank] == host, where[e.Of] == host, "rank %d blames %d: %s", rank, e.Of, e.Text)
		}
	}
	for rank, p := range w.ranks {
		on := rank < len(goesOn) && goesOn[len(goesOn)-1-rank] == '1'
		if on {
			assert.NotNil(w.t, p.await(soon, "shrunk"), "rank %d does not go on", rank)
		} else if assert.NotNil(w.t, p.await(2*soon, "ended"), "rank %d does not end", rank) {
			assert.Nil(w.t, p.find("shrunk"), "rank %d goes on", rank)
		}
	}
	w.stop()
	w.all(20*time.Second, "ended")
	for _, p := range w.ranks {
		if p.find("shrunk") == nil {
			continue
		}
		if e := p.last("stops"); assert.NotNil(w.t, e, "rank %d does not go on to the end", p.rank) {
			assert.Equal(w.t, goesOn, e.Text, "rank %d goes on with others", p.rank)
		}
	}
	w.sane()
}

// unharmed checks that no rank had an error.
func (w *world) unharmed() {
	w.t.Helper()
	for _, p := range w.ranks {
		if e := p.find("error"); e != nil {
			w.t.Errorf("rank %d: %s", p.rank, e.Text)
		}
	}
	w.sane()
}

// sane checks that results were right, and that no rank took long to close.
func (w *world) sane() {
	w.t.Helper()
	for _, p := range w.ranks {
		assert.Nil(w.t, p.find("wrong"), "rank %d", p.rank)
		assert.NotContains(w.t, p.wrote(), "UCX  WARN  invalid configuration", "rank %d", p.rank)
		if e := p.find("closed"); e != nil && e.Asked > busyKernel {
			w.t.Logf("rank %d closed after %s, while the kernel took %s for an answer", p.rank, e.Took, e.Asked)
		} else if e != nil {
			assert.Empty(w.t, e.Text, "rank %d", p.rank)
			assert.Less(w.t, e.Took, 7*time.Second, "rank %d closes", p.rank)
		}
	}
}

// TestPoorNetworks: frames that are late, lost, doubled or out of order cost time and nothing else.
func TestPoorNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		Condition
		long bool
	}{
		{"bad", Condition{Delay: 20 * time.Millisecond, Reorder: .1, Loss: .02, Duplicate: .05, Rate: 2500000}, false},
		{"delay", Condition{Delay: 200 * time.Millisecond}, true}, {"loss", Condition{Loss: .1}, true},
		{"duplicates", Condition{Duplicate: .3}, true}, {"rate", Condition{Rate: 1250000}, true},
		{"order", Condition{Delay: 5 * time.Millisecond, Reorder: .25}, true},
	} {
		if c.long && !*long {
			continue
		}
		for _, bytes := range []int{64, 1 << 20} {
			if bytes > 64 && !*long {
				continue
			}
			t.Run(fmt.Sprint(c.name, "/", bytes), func(t *testing.T) {
				t.Parallel()
				hosts := lan(t, 2)
				for _, h := range hosts {
					h.Links[0].Set(c.Condition, Condition{})
				}
				goes(t, hosts, []int{0, 0, 1, 1}, Program{Bytes: bytes}, "SHUNT_TIMEOUT=60s")
			})
		}
	}
}

// goes runs ranks that must have no error.
func goes(t *testing.T, hosts []*Host, where []int, p Program, env ...string) {
	t.Helper()
	w := start(t, hosts, where, p, env...)
	w.all(60*time.Second, "runs", "ended")
	w.stop()
	w.all(60*time.Second, "ended")
	w.unharmed()
}

// TestKilledWhileSlow: the death of a rank on another host, also of all of its host, is known within the network's
// delay.
func TestKilledWhileSlow(t *testing.T) {
	t.Parallel()
	for _, dead := range [][]int{{3}, {0}, {2, 3}, {0, 1}} {
		if !*long && (dead[0] != 0 || len(dead) > 1) {
			continue
		}
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			t.Parallel()
			hosts := lan(t, 2)
			for _, h := range hosts {
				h.Links[0].Set(Condition{Delay: 50 * time.Millisecond, Loss: .02}, Condition{})
			}
			w := start(t, hosts, []int{0, 0, 1, 1}, Program{Bytes: 40000, Shrink: true}, quick...)
			w.all(30*time.Second, "runs")
			for _, rank := range dead {
				w.ranks[rank].signal(syscall.SIGKILL)
			}
			w.survive(dead)
		})
	}
}

// TestPausedHosts: a job on several hosts that is stopped as a whole continues, as one on a single host does.
func TestPausedHosts(t *testing.T) {
	t.Parallel()
	w := running(t, []int{0, 0, 1, 1}, Program{Pause: 5 * time.Millisecond})
	for _, p := range w.ranks {
		p.signal(syscall.SIGSTOP)
	}
	<-time.After(silence + time.Second) // the pause
	for _, p := range w.ranks {
		p.signal(syscall.SIGCONT)
	}
	w.stop()
	w.all(20*time.Second, "ended")
	w.unharmed()
}

// survive checks that ranks that others have left have errors, and continue together, or end where they are no
// majority.
func (w *world) survive(dead []int) {
	w.t.Helper()
	var on []string
	for _, p := range w.ranks {
		if p.rank == dead[0] || p.rank == dead[len(dead)-1] {
			continue
		}
		if e := p.await(soon, "error"); assert.NotNil(w.t, e, "rank %d has no error", p.rank) {
			assert.Equal(w.t, "peer_died", e.Code, "rank %d: %s", p.rank, e.Text)
		}
		if assert.NotNil(w.t, p.await(2*soon, "shrunk", "ended"), "rank %d neither goes on nor ends", p.rank) {
			if p.find("shrunk") != nil {
				on = append(on, fmt.Sprint(p.rank))
			} else if 2*len(dead) < len(w.ranks) {
				w.t.Errorf("rank %d ends, though it is one of a majority", p.rank)
			}
		}
	}
	w.stop()
	for _, p := range w.ranks {
		assert.True(w.t, p.over(20*time.Second), "rank %d does not end", p.rank)
		if e := p.last("stops"); p.find("shrunk") != nil && assert.NotNil(w.t, e, "rank %d", p.rank) {
			assert.Equal(w.t, len(on), e.World, "rank %d goes on with %s of %v", p.rank, e.Text, on)
		}
	}
}

// TestAddressChanges: a host whose address changes is lost, on whichever side a rank is.
func TestAddressChanges(t *testing.T) {
	t.Parallel()
	hosts := lan(t, 2)
	w := start(t, hosts, []int{0, 1, 1}, Program{Shrink: true, Pause: 5 * time.Millisecond}, quick...)
	w.all(20*time.Second, "runs")
	hosts[1].Do(t, "ip addr add 10.0.0.9/24 dev eth0")
	hosts[1].Do(t, "ip addr del 10.0.0.2/24 dev eth0")
	w.lost([]int{0, 1, 1}, 1, "110")
}
