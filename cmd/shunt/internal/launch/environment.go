package launch

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sets are the variables that every rank gets from its launcher.
var sets = []string{"SHUNT_RANK", "SHUNT_WORLD", "SHUNT_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE",
	"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE"}

// Sets reports whether the launcher sets a variable for every rank, whatever Env says.
func Sets(name string) bool { return slices.Contains(sets, name) }

// environment returns the launcher's environment, without what another launcher said about ranks, and with this job's.
func (r *running) environment(rank int) []string {
	var env []string
	for _, entry := range append(os.Environ(), r.job.Env...) {
		if name, _, _ := strings.Cut(entry, "="); !Sets(name) {
			env = append(env, entry)
		}
	}
	// Programs of torch choose their GPU by LOCAL_RANK.
	number, world, address := strconv.Itoa(r.number(rank)), strconv.Itoa(r.world()), loopback
	if r.job.Part != nil {
		address = r.job.Part.Address
	}
	env = append(env, "SHUNT_RANK="+number, "SHUNT_WORLD="+world, "SHUNT_ID="+r.id, "LOCAL_RANK="+strconv.Itoa(rank),
		"LOCAL_WORLD_SIZE="+strconv.Itoa(r.job.World), "RANK="+number, "WORLD_SIZE="+world, "MASTER_ADDR="+address,
		"MASTER_PORT="+r.port)
	// Rank 0 serves the store of torch.distributed. Under torchrun the launcher would.
	env = append(env, "TORCHELASTIC_RESTART_COUNT="+strconv.Itoa(r.job.Restart), "TORCHELASTIC_USE_AGENT_STORE=False")
	if r.job.Hosts > 1 {
		env = append(env, "SHUNT_HOST_ID=host"+strconv.Itoa(rank*r.job.Hosts/r.job.World))
	}
	return env
}

// loopback is where the ranks of one machine find the store of torch.distributed.
const loopback = "127.0.0.1"

// freePort returns a port of an address of this machine on which no process listens now. torch.distributed needs it
// before rank 0 listens. Where this process cannot listen there, because there is no IPv4 or a sandbox forbids
// it, it is torch's usual port: only programs of torch.distributed use it, and their error says why they cannot listen.
func freePort(address string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if slices.ContainsFunc(noNetwork, func(e syscall.Errno) bool { return errors.Is(err, e) }) {
		return "29500", nil
	}
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// noNetwork are the errors of a process that has no network.
var noNetwork = []syscall.Errno{syscall.EAFNOSUPPORT, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES}
