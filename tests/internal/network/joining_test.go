package network

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// How ranks of several hosts find each other, and what they say where they do not.

// TestFirewall lets nothing but the store's port through: the error says between which hosts, and neither a call nor
// close hangs.
func TestFirewall(t *testing.T) {
	t.Parallel()
	closed := Condition{Stops: func(frame []byte) bool {
		port := portAsked(frame)
		return port != 0 && port != 29500
	}}
	for _, does := range []string{"calls", "nothing"} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			hosts := lan(t, 2)
			for _, h := range hosts {
				h.Links[0].Set(Condition{}, closed)
			}
			w := start(t, hosts, []int{0, 0, 1, 1}, Program{Does: does}, "SHUNT_TIMEOUT=12s") // of which joining takes a part
			w.all(60*time.Second, "ended")
			for _, p := range w.ranks {
				if e := p.find("error"); does == "calls" && assert.NotNil(t, e, "rank %d", p.rank) {
					assert.Equal(t, "timeout", e.Code)
					assert.Regexp(t, `got no response from peer rank \d .*host node[01] and host node[01] must reach each other .*`+
						`\(a variable of its library chooses them, such as UCX_NET_DEVICES, and host node[01] has .*eth0 10\.0\.0\.[12]`, e.Text)
				} else if does == "nothing" {
					assert.Nil(t, e, "rank %d", p.rank)
				}
			}
			w.sane()
		})
	}
}

// TestUnreachableNetwork: where the kernel knows that no host is reached by the interface that UCX uses, the error says
// what the hosts need too.
func TestUnreachableNetwork(t *testing.T) {
	t.Parallel()
	hosts, common := bare(t, 2), &Segment{}
	for i, h := range hosts {
		h.Join(t, common, "common", fmt.Sprintf("10.0.0.%d/24", i+1)) // which UCX does not see, as this machine has no such one
		h.Join(t, &Segment{}, "eth0", fmt.Sprintf("10.9.0.%d/24", i+1))
	}
	w := start(t, hosts, []int{0, 1}, Program{}, "SHUNT_TIMEOUT=30s", "UCX_NET_DEVICES=eth0")
	w.all(60*time.Second, "ended")
	for _, p := range w.ranks {
		if e := p.find("error"); assert.NotNil(t, e, "rank %d", p.rank) {
			assert.Equal(t, "peer_died", e.Code, "rank %d: %s", p.rank, e.Text)
			assert.Contains(t, e.Text, "its host and this one must reach each other on all ports", "rank %d", p.rank)
			assert.Regexp(t, `such as UCX_NET_DEVICES, and host node[01] has common .*, eth0 10\.9\.0\.[12]`, e.Text)
		}
	}
	w.sane()
}

// TestNetworkThatStops: where calls have passed, no error says that the hosts must reach each other.
func TestNetworkThatStops(t *testing.T) {
	t.Parallel()
	w := running(t, []int{0, 1}, Program{Pause: time.Millisecond})
	stopped := Condition{Stops: func(frame []byte) bool { from, to := ports(frame); return from != 29500 && to != 29500 }}
	w.hosts[0].Links[0].Set(stopped, stopped)
	w.all(60*time.Second, "ended")
	for _, p := range w.ranks {
		if e := p.find("error"); assert.NotNil(t, e, "rank %d", p.rank) {
			assert.Equal(t, "timeout", e.Code, "rank %d: %s", p.rank, e.Text)
			assert.Regexp(t, `the network: earlier calls passed between host node[01] and host node[01], so it is slow or `+
				`interrupted, and SHUNT_TIMEOUT bounds a call`, e.Text)
		}
	}
	w.sane()
}

// ports returns the ports of a frame of TCP, or 0.
func ports(f []byte) (from, to int) {
	if len(f) < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6 {
		return 0, 0
	}
	tcp := f[14+4*int(f[14]&15):]
	return int(tcp[0])<<8 | int(tcp[1]), int(tcp[2])<<8 | int(tcp[3])
}

// portAsked returns the port to which a frame asks for a connection of TCP, or 0.
func portAsked(f []byte) int {
	_, to := ports(f)
	if to == 0 || f[14+4*int(f[14]&15)+13]&0x12 != 2 {
		return 0
	}
	return to
}

// TestNameOfTheOwnHost: where others look by a host's name, rank 0 listens, also if that host itself takes the name for
// its loopback interface.
func TestNameOfTheOwnHost(t *testing.T) {
	t.Parallel()
	hosts := lan(t, 2)
	hosts[0].File(t, "/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 node0\n")
	hosts[1].File(t, "/etc/hosts", "127.0.0.1 localhost\n10.0.0.1 node0\n")
	goes(t, hosts, []int{0, 0, 1, 1}, Program{}, "SHUNT_ID=tcp://node0:29500", "SHUNT_TIMEOUT=10s")
}

// TestNamesOfSeveralAddresses: a name leads to rank 0 if one of its addresses does, whatever becomes of what is sent to
// the others.
func TestNamesOfSeveralAddresses(t *testing.T) {
	t.Parallel()
	const silent, v4, v6 = "10.0.0.50 trainer\n", "10.0.0.1 trainer\n", "fd00::1 trainer\n"
	of := func(kind uint16) Condition {
		return Condition{Stops: func(f []byte) bool { return len(f) > 14 && binary.BigEndian.Uint16(f[12:]) == kind }}
	}
	for _, c := range []struct {
		name, names string
		Condition
	}{
		{"silent first", silent + v4, Condition{}}, {"silent last", v4 + silent, Condition{}},
		{"IPv6 dropped", v6 + v4, of(0x86dd)}, {"IPv4 dropped", v6 + v4, of(0x0800)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hosts := lan(t, 2)
			for i, h := range hosts {
				h.Do(t, fmt.Sprintf("ip addr add fd00::%d/64 dev eth0 nodad", i+1))
				h.Do(t, "ip neigh add 10.0.0.50 lladdr 02:00:00:00:00:01 dev eth0")
				h.File(t, "/etc/hosts", "127.0.0.1 localhost\n"+c.names)
				h.Links[0].Set(c.Condition, c.Condition)
			}
			goes(t, hosts, []int{0, 0, 1, 1}, Program{Does: "nothing"}, "SHUNT_ID=tcp://trainer:29500", "SHUNT_TIMEOUT=10s")
		})
	}
}

// TestHostsOfOneName: ranks of hosts that SHUNT_HOST_ID takes for one get that error, and no rank is said to have died.
func TestHostsOfOneName(t *testing.T) {
	t.Parallel()
	w := start(t, lan(t, 2), []int{0, 1}, Program{}, "SHUNT_HOST_ID=node", "SHUNT_TIMEOUT=10s")
	for _, p := range w.ranks {
		if e := p.await(20*time.Second, "error", "joined"); assert.NotNil(t, e, "rank %d", p.rank) {
			assert.Equal(t, "mismatch", e.Code)
			assert.Contains(t, e.Text, "on host node1) have the same SHUNT_HOST_ID and cannot share memory")
		}
	}
}

// TestInterfacesThatReachNobody: ranks find the addresses by which they reach each other, also those of the store's
// successor, without waiting for the others.
func TestInterfacesThatReachNobody(t *testing.T) {
	t.Parallel()
	hosts, common := bare(t, 3), &Segment{}
	for i, h := range hosts {
		for j := range 2 {
			name, net := fmt.Sprint("lone", j), fmt.Sprintf("192.168.%d.", 10*i+j)
			h.Join(t, &Segment{}, name, net+"2/24")
			if j == 0 { // what goes elsewhere vanishes there
				h.Do(t, "ip route add default via "+net+"1")
				h.Do(t, "ip neigh add "+net+"1 lladdr 02:00:00:00:00:01 dev "+name)
			}
		}
		h.Join(t, common, "eth0", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	w := start(t, hosts, []int{0, 1, 2}, Program{Shrink: true, Pause: 5 * time.Millisecond})
	w.all(20*time.Second, "runs")
	w.ranks[0].signal(syscall.SIGKILL)
	for _, p := range w.ranks[1:] {
		if e := p.await(15*time.Second, "shrunk", "ended"); assert.NotNil(t, e, "rank %d", p.rank) {
			assert.Equal(t, "shrunk", e.What)
			assert.Less(t, e.Took, 2*time.Second, "rank %d", p.rank)
		}
	}
	w.stop()
	for _, p := range w.ranks[1:] {
		assert.NotNil(t, p.await(15*time.Second, "ended"), "rank %d does not end", p.rank)
	}
}

// TestCutWhileJoining: whenever a host is lost while a job begins, every rank ends in time.
func TestCutWhileJoining(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(*seed, 1))
	rounds := 1
	if *long {
		rounds = 20
	}
	t.Logf("-network.seed=%d", *seed)
	for round := range rounds {
		c, host, after := cut[random.IntN(3)], random.IntN(2), time.Duration(random.IntN(700))*time.Millisecond
		t.Run(fmt.Sprintf("%d %s host %d after %s", round, c.name, host, after), func(t *testing.T) {
			t.Parallel()
			hosts := lan(t, 3)
			w := start(t, hosts, []int{0, 0, 1, 2}, Program{Pause: time.Millisecond}, quick[0], "SHUNT_TIMEOUT=5s")
			<-time.After(after) // the moment
			c.begin(t, hosts[host])
			for _, p := range w.ranks {
				e := p.await(5*time.Second+soon, "error")
				if assert.NotNil(t, e, "rank %d has no error", p.rank) {
					assert.Contains(t, []string{"timeout", "peer_died"}, e.Code, "rank %d: %s", p.rank, e.Text)
					assert.NotContains(t, e.Text, "the thread that called it is lost", "rank %d", p.rank)
				}
			}
			w.all(10*time.Second, "ended")
			w.sane()
		})
	}
}
