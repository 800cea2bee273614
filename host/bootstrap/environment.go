package bootstrap

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// launcher is a program that starts ranks, and the variables by which it numbers them.
type launcher struct {
	name               string
	rank, world, local string         // variables
	there              func(env) bool // if set, and false, the launcher is not there
	nested             []string       // if one of these is set, what other launchers say is about something larger
	outer              bool           // what it says is about something larger if another launcher is there
	partial            bool           // world without rank is normal
	index              bool           // rank without world is normal
	meet               func(env) (string, error)
}

// launchers, in the order they are looked for.
var launchers = []launcher{
	{name: "SHUNT_*", rank: "SHUNT_RANK", world: "SHUNT_WORLD", nested: []string{"SHUNT_RANK"}, meet: meetAnywhere},
	{name: "torchrun", rank: "RANK", world: "WORLD_SIZE", local: "LOCAL_RANK", nested: []string{"TORCHELASTIC_RUN_ID"},
		meet: meetMaster},
	{name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", world: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK",
		meet: meetOpenMPI},
	{name: "MPICH", rank: "PMI_RANK", world: "PMI_SIZE", local: "MPI_LOCALRANKID", there: byHydra, meet: meetMPICH},
	{name: "Slurm", rank: "SLURM_PROCID", world: "SLURM_NTASKS", local: "SLURM_LOCALID",
		there: inSlurmStep, outer: true, partial: true, meet: meetSlurm},
	{name: "Kubernetes", rank: "JOB_COMPLETION_INDEX", world: "WORLD_SIZE", outer: true, partial: true, index: true,
		meet: meetMaster},
}

type env func(string) string

func (e env) any(names ...string) string {
	for _, name := range names {
		if v := e(name); v != "" {
			return v
		}
	}
	return ""
}

// identity is a rank as one launcher tells it.
type identity struct {
	launcher           *launcher
	rank, world, local int
}

func (e env) number(launcher, name string, least, most int) (int, error) {
	v, err := strconv.Atoi(strings.TrimSpace(e(name)))
	if err != nil || v < least || v > most {
		return 0, plugin.Errorf(plugin.InvalidArgument, "environment of %s: %s=%.40q is not a number from %d to %d", launcher,
			name, e(name), least, most)
	}
	return v, nil
}

// read takes what a launcher says; nil if it is not there.
func (l *launcher) read(e env) (*identity, error) {
	hasRank, hasWorld := e(l.rank) != "", e(l.world) != ""
	if !hasWorld && (!hasRank || l.index) || !hasRank && l.partial || (l.there != nil && !l.there(e)) {
		return nil, nil
	}
	if !hasRank && l.rank == "RANK" && e("JOB_COMPLETION_INDEX") != "" {
		return nil, nil // a pod of an indexed job, whose manifest sets WORLD_SIZE
	}
	if hasRank != hasWorld {
		missing, there := l.world, l.rank
		if hasWorld {
			missing, there = l.rank, l.world
		}
		return nil, plugin.Errorf(plugin.InvalidArgument, "environment of %s: %s is set but %s is not", l.name, there,
			missing)
	}
	id := &identity{launcher: l, local: -1}
	var err error
	if id.world, err = e.number(l.name, l.world, 1, plugin.MaxWorld); err != nil {
		return nil, err
	}
	if id.rank, err = e.number(l.name, l.rank, 0, id.world-1); err != nil {
		return nil, err
	}
	if l.local != "" && e(l.local) != "" {
		if id.local, err = e.number(l.name, l.local, 0, plugin.MaxWorld-1); err != nil {
			return nil, err
		}
	}
	return id, nil
}

// FromEnvironment learns rank, world and meeting place from a launcher:
// SHUNT_RANK and SHUNT_WORLD, torchrun, Open MPI, MPICH (Hydra), Slurm or an indexed
// job of Kubernetes, in this order. SHUNT_RANK, and torchrun's own variables, go before what an
// enclosing launcher says; Slurm and Kubernetes give way to all others; otherwise two that
// disagree are an error. SHUNT_ID gives the meeting place; without it that
// is, by launcher:
//
//   - torchrun, or MASTER_ADDR and MASTER_PORT beside any other: one of the eight ports above MASTER_PORT, which torch
//     itself uses;
//   - Open MPI and MPICH: an abstract socket named after the job, which serves ranks of one host (and of one network
//     namespace) only;
//   - Slurm: the same on one node, else a port derived from the job's number on the first node of the step.
//
// MPICH gives the job no name, so it is called after the process that starts its ranks on a host.
// Without any launcher the world is this process alone.
func FromEnvironment(getenv func(string) string) (Config, error) {
	e := env(func(name string) string {
		v := getenv(name)
		if len(v) > maxURL {
			v = v[:maxURL]
		}
		return v
	})
	c := Config{LocalRank: -1, World: 1, URL: e("SHUNT_ID"), Secret: e("SHUNT_SECRET")}
	id, err := whoAmI(e)
	if err != nil {
		return Config{}, err
	}
	if id == nil {
		if c.URL != "" {
			return Config{}, plugin.Errorf(plugin.InvalidArgument,
				"environment: SHUNT_ID is set but no rank; set SHUNT_RANK and SHUNT_WORLD, or use a launcher")
		}
		return c, nil
	}
	c.Rank, c.World, c.LocalRank = id.rank, id.world, id.local
	if c.URL != "" || c.World == 1 {
		return c, nil
	}
	if e("MASTER_ADDR") != "" && e("MASTER_PORT") != "" {
		c.URL, err = meetMaster(e)
		c.anyJob = e("TORCHELASTIC_RUN_ID") == "" && e.slurmJob() == ""
	} else {
		c.URL, err = id.launcher.meet(e)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

func whoAmI(e env) (*identity, error) {
	var found []*identity
	for i := range launchers {
		l := &launchers[i]
		id, err := l.read(e)
		if err != nil {
			return nil, err
		}
		if id == nil {
			continue
		}
		if len(found) == 0 && len(l.nested) > 0 && e.any(l.nested...) != "" {
			return id, nil
		}
		if len(found) > 0 && l.outer {
			continue
		}
		found = append(found, id)
	}
	if len(found) == 0 {
		return nil, nil
	}
	for _, other := range found[1:] {
		if a := found[0]; a.rank != other.rank || a.world != other.world {
			return nil, plugin.Errorf(plugin.InvalidArgument,
				"environment: %s says rank %d of %d (%s, %s), %s says rank %d of %d (%s, %s); unset one or set SHUNT_RANK and SHUNT_WORLD",
				a.launcher.name, a.rank, a.world, a.launcher.rank, a.launcher.world,
				other.launcher.name, other.rank, other.world, other.launcher.rank, other.launcher.world)
		}
	}
	return found[0], nil
}

func meetAnywhere(env) (string, error) {
	return "", plugin.Errorf(plugin.InvalidArgument, "environment: SHUNT_RANK and SHUNT_WORLD are set but not SHUNT_ID, the ranks' meeting place")
}

// portsOf is the number of ports tried beside a launcher's own.
const portsOf = 8

func meetMaster(e env) (string, error) {
	host := e("MASTER_ADDR")
	if host == "" || e("MASTER_PORT") == "" {
		return "", plugin.Errorf(plugin.InvalidArgument,
			"environment: a rank and WORLD_SIZE are set but not MASTER_ADDR and MASTER_PORT; set them or SHUNT_ID")
	}
	port, err := e.number("torchrun", "MASTER_PORT", 1, 65535)
	if err != nil {
		return "", err
	}
	first := port + 1
	if first+portsOf-1 > 65535 {
		first = port - portsOf
	}
	return tcpURL(host, first, "torch", e("TORCHELASTIC_RUN_ID"), e("TORCHELASTIC_RESTART_COUNT"), e.slurmJob())
}

// slurmJob names the job of all its steps; "" outside Slurm.
func (e env) slurmJob() string { return e.any("SLURM_JOB_ID", "SLURM_JOBID") }

func tcpURL(host string, first int, job ...string) (string, error) {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	url := "tcp://" + net.JoinHostPort(host, fmt.Sprintf("%d-%d", first, first+portsOf-1)) + "?job=" + shortHash(job...)
	_, err := parseMeeting(url, "")
	return url, err
}

// localURL returns an abstract socket for the ranks of one host and user.
func localURL(job ...string) string {
	return fmt.Sprintf("unix://@shunt-%d-%s", os.Geteuid(), shortHash(job...))
}

func meetOpenMPI(e env) (string, error) {
	job := e.any("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")
	if job == "" {
		return "", plugin.Errorf(plugin.InvalidArgument,
			"environment of Open MPI: it does not say the job's name (PMIX_NAMESPACE); set SHUNT_ID")
	}
	// Two mpiruns have one name where each is process 1 of its container. Their servers, of which all ranks of a host have
	// the same, listen at different addresses.
	server := e.any("PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2",
		"OMPI_MCA_orte_hnp_uri")
	return oneHost(e, "Open MPI", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", "openmpi", job, server)
}

func meetMPICH(e env) (string, error) {
	parent := identify(hydraProxy())
	return oneHost(e, "MPICH", "MPI_LOCALNRANKS", "PMI_SIZE", "mpich", strconv.Itoa(parent.pid), parent.start)
}

// byHydra tells whether PMI_RANK is MPICH's: srun --mpi=pmi2 sets it too, and says more in its own variables.
func byHydra(e env) bool { return e("MPI_LOCALNRANKS") != "" || !inSlurmStep(e) }

// hydraProxy returns the process by which MPICH starts the ranks of a host: the nearest above this one, as a shell or
// another program may be between them. If there is none of its name, it is this one's parent.
func hydraProxy() int {
	for pid := os.Getppid(); pid > 1; {
		name, fields, err := stat(pid)
		if err != nil {
			break
		}
		if name == "hydra_pmi_proxy" {
			return pid
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return os.Getppid()
}

func oneHost(e env, name, local, world string, job ...string) (string, error) {
	if e(local) != "" && e(local) != e(world) {
		return "", plugin.Errorf(plugin.InvalidArgument,
			"environment of %s: the ranks run on several hosts (%s=%.20s of %.20s) and it gives no address; set MASTER_ADDR and MASTER_PORT, or SHUNT_ID", name, local, e(local), e(world))
	}
	return localURL(job...), nil
}

// inSlurmStep tells whether srun started this process. Steps with the highest numbers are no ranks: the shell of salloc
// is one, whose SLURM_NTASKS is that of the allocation.
func inSlurmStep(e env) bool {
	const highest = 0xfffffff0 // SLURM_MAX_NORMAL_STEP_ID
	step := e.any("SLURM_STEP_ID", "SLURM_STEPID")
	number, err := strconv.ParseUint(step, 10, 32)
	return step != "" && (err != nil || number < highest)
}

func meetSlurm(e env) (string, error) {
	job, step := e.slurmJob(), e.any("SLURM_STEP_ID", "SLURM_STEPID")
	if job == "" {
		return "", plugin.Errorf(plugin.InvalidArgument, "environment of Slurm: SLURM_JOB_ID is not set; set SHUNT_ID")
	}
	if e.any("SLURM_STEP_NUM_NODES", "SLURM_NNODES") == "1" {
		return localURL("slurm", job, step), nil
	}
	first, err := firstHost(e.any("SLURM_STEP_NODELIST", "SLURM_NODELIST"))
	if err != nil {
		return "", err
	}
	if node := e("SLURM_NODEID"); e("SLURM_PROCID") == "0" && node != "" && node != "0" { // srun -m arbitrary
		return "", plugin.Errorf(plugin.InvalidArgument,
			"environment of Slurm: rank 0 is on node %s of the step, want it on the first, where the others look for it; set SHUNT_ID",
			node)
	}
	const lowest, span = 20000, 10000 // below the ports that systems give to clients
	sum := 0
	for _, c := range job + "." + step {
		sum = (sum*31 + int(c)) % (span / portsOf)
	}
	return tcpURL(first, lowest+sum*portsOf, "slurm", job, step)
}

// firstHost returns the first host of a list such as "gpu[07-09,12],login1".
func firstHost(list string) (string, error) {
	bad := func() (string, error) {
		return "", plugin.Errorf(plugin.InvalidArgument,
			"environment of Slurm: the node list %.80q is malformed; set SHUNT_ID", list)
	}
	var host strings.Builder
	for rest := list; rest != ""; {
		i := strings.IndexAny(rest, ",[")
		if i < 0 {
			i = len(rest)
		}
		host.WriteString(rest[:i])
		if i == len(rest) || rest[i] == ',' {
			break
		}
		end := strings.IndexByte(rest, ']')
		if end < i {
			return bad()
		}
		number := rest[i+1 : end]
		if j := strings.IndexAny(number, "-,"); j >= 0 {
			number = number[:j]
		}
		if number == "" {
			return bad()
		}
		host.WriteString(number)
		rest = rest[end+1:]
	}
	for _, c := range host.String() {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '.' && c != '_' {
			return bad()
		}
	}
	if host.Len() == 0 || host.Len() > 253 {
		return bad()
	}
	return host.String(), nil
}
