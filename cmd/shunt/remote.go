package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/plugin"
)

// remoteJob is the job of one machine, which its launcher reads as a line of JSON from standard input: it has secrets,
// which other users could see in a command line.
type remoteJob struct {
	Machine string        `json:"machine"`
	Part    launch.Part   `json:"part"`
	World   int           `json:"world"`
	Dir     []byte        `json:"dir"` // these four need not be UTF-8
	Path    []byte        `json:"path"`
	Args    [][]byte      `json:"args"`
	Env     [][]byte      `json:"env"`
	Prefix  bool          `json:"prefix"`
	Bind    bool          `json:"bind"`
	Restart int           `json:"restart"`
	Grace   time.Duration `json:"grace"`

	Marker  string `json:"marker,omitempty"`  // of messages that are wanted; "": none
	Records string `json:"records,omitempty"` // folder to make in the temporary directory there; "": none
	NCCL    bool   `json:"nccl,omitempty"`
}

// carried are the beginnings of the variables that ranks on other machines get too.
var carried = []string{"SHUNT_", "NCCL_", "UCX_", "CUDA_", "PYTHON", "OMP_", "PATH=", "LD_LIBRARY_PATH=",
	"VIRTUAL_ENV="}

// portsOfJob is the number of ports that a job on several machines may use: eight to meet on, and MASTER_PORT.
const portsOfJob = 9

// remote are the flags of a job on several machines.
type remote struct {
	hostfile, shell, address string
	port                     int
}

// machines reads the hostfile, for world ranks, or as many as it has slots for 0.
func (r *remote) machines(world int) ([]launch.Machine, error) {
	if r.port < 0 || r.port > 65535-portsOfJob {
		return nil, usage("--port %d; want 1 to %d, or 0 for any", r.port, 65535-portsOfJob)
	}
	if len(strings.Fields(r.shell)) == 0 {
		return nil, usage("--remote-shell is empty; want a command such as ssh")
	}
	if inner, is := strings.CutPrefix(r.address, "["); is && strings.HasSuffix(inner, "]") { // as URLs have IPv6
		r.address = strings.TrimSuffix(inner, "]")
	}
	if _, err := netip.ParseAddr(r.address); err != nil && strings.ContainsAny(r.address, ":/?#%[] ") {
		return nil, usage("--address %q is neither a name nor an address; a port is that of --port", r.address)
	}
	all, err := launch.ReadHostfile(r.hostfile)
	if err != nil {
		return nil, err
	}
	used, err := launch.Fill(all, world)
	if err == nil && r.address == "" && isLoopback(used[0].Host()) &&
		slices.ContainsFunc(used, func(m launch.Machine) bool { return !isLoopback(m.Host()) }) {
		return nil, usage("hostfile %s, line %d: other hosts cannot reach %s: write this host's name, or use --address",
			r.hostfile, used[0].Line, used[0].Host())
	}
	return used, err
}

// isLoopback reports whether a host's name or address means, on each host, that host.
func isLoopback(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && at.Unmap().IsLoopback())
}

// spread makes of a job one whose processes are the launchers of machines, which the remote shell starts. What they
// report is gathered.
func (r *remote) spread(j launch.Job, machines []launch.Machine, g *gathering) (launch.Job, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	dir, wdErr := os.Getwd()
	if err != nil || wdErr != nil {
		return j, plugin.Errorf(plugin.System, "shunt run: %w", errors.Join(err, wdErr))
	}
	head := launch.Job{World: len(machines), Label: j.Label, Stdout: j.Stdout, Stderr: j.Stderr, Grace: j.Grace}
	head.Here = func(at int) bool { return isHere(machines[at]) }
	for _, m := range machines {
		head.Machines = append(head.Machines, m.Name)
	}
	firsts, world := firstRanks(machines)
	address := r.address
	if address == "" {
		address = machines[0].Host()
	}
	env, places := carriedEnv(j.Env), meetings{address: address, port: r.port, world: world}
	head.Command = func(rank int) []string {
		if head.Here(rank) {
			return []string{self, "agent"}
		}
		quoted := "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
		return append(strings.Fields(r.shell), machines[rank].Name, quoted+" agent") // a shell reads it there
	}
	head.Lifeline = func(rank, restart int) []byte {
		part := places.of(restart)
		part.First = firsts[rank]
		job := remoteJob{Machine: machines[rank].Name, Part: part, World: machines[rank].Slots, Dir: []byte(dir),
			Path: []byte(j.Path), Args: convert[[]byte](j.Args), Env: convert[[]byte](slices.Concat(env, places.secret())),
			Prefix: j.Prefix, Bind: j.Bind, Restart: restart,
			Grace: j.Grace}
		g.ask(rank, &job)
		text, _ := json.Marshal(job)
		return append(text, '\n') // of strings and numbers, which always have JSON
	}
	head.Intercept, head.Reported = g.intercept, g.reported
	return head, nil
}

// convert converts each of a list.
func convert[To, From string | []byte](list []From) []To {
	converted := make([]To, len(list))
	for i, x := range list {
		converted[i] = To(x)
	}
	return converted
}

// firstRanks returns the number of the first rank on each machine, and of all ranks.
func firstRanks(machines []launch.Machine) (firsts []int, world int) {
	for _, m := range machines {
		firsts = append(firsts, world)
		world += m.Slots
	}
	return firsts, world
}

// isHere tells whether a line of a hostfile means this machine and user, which need no remote shell.
func isHere(m launch.Machine) bool {
	if login, named := strings.CutSuffix(m.Name, "@"+m.Host()); named {
		if self, err := user.Current(); err != nil || self.Username != login {
			return false
		}
	}
	name, err := os.Hostname()
	return m.Host() == "localhost" || (err == nil && m.Host() == name)
}

// carriedEnv returns the environment of ranks on other machines: a part of this one, and the given entries.
func carriedEnv(given []string) []string {
	var env []string
	for _, entry := range os.Environ() {
		for _, beginning := range carried {
			if strings.HasPrefix(entry, beginning) {
				env = append(env, entry)
				break
			}
		}
	}
	return append(env, given...)
}

// meetings has the address and the secret with which the ranks meet, for each start of the job.
type meetings struct {
	address string
	port    int // 0: any
	world   int

	mu   sync.Mutex
	made map[int]launch.Part
	key  string
}

func (m *meetings) of(restart int) launch.Part {
	m.mu.Lock()
	defer m.mu.Unlock()
	if part, made := m.made[restart]; made {
		return part
	}
	first := m.port
	if first == 0 {
		first = 20000 + mathrand.IntN(1000)*portsOfJob // below the ports that systems give to clients
	}
	var job [4]byte
	rand.Read(job[:]) // never fails
	at := net.JoinHostPort(m.address, fmt.Sprintf("%d-%d", first, first+portsOfJob-2))
	part := launch.Part{World: m.world, ID: "tcp://" + at + "?job=" + hex.EncodeToString(job[:]), Address: m.address,
		Port: strconv.Itoa(first + portsOfJob - 1)}
	if m.made == nil {
		m.made = map[int]launch.Part{}
	}
	m.made[restart] = part
	return part
}

// secret is a new one, if the user has none.
func (m *meetings) secret() []string {
	if os.Getenv("SHUNT_SECRET") != "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.key == "" {
		m.key = rand.Text() + rand.Text() // one that happens to have no digit would be warned of as too weak
	}
	return []string{"SHUNT_SECRET=" + m.key}
}
