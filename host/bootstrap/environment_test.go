package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestFromEnvironment(t *testing.T) {
	uid := os.Geteuid()
	local := func(job ...string) string { return fmt.Sprintf("unix://@shunt-%d-%s", uid, shortHash(job...)) }
	parent := identify(os.Getppid())
	for _, c := range []struct {
		name string
		env  string
		want string // rank/world/local url, or a part of the error
	}{
		{"nothing", "", "0/1/-1 "},
		{"own", "SHUNT_RANK=2 SHUNT_WORLD=4 SHUNT_ID=tcp://h:1", "2/4/-1 tcp://h:1"},
		{"own, alone", "SHUNT_RANK=0 SHUNT_WORLD=1", "0/1/-1 "},
		{"own without place", "SHUNT_RANK=0 SHUNT_WORLD=2", "!SHUNT_ID"},
		{"own with master", "SHUNT_RANK=0 SHUNT_WORLD=2 MASTER_ADDR=h MASTER_PORT=100", "0/2/-1 tcp://h:101-108?job=" +
			shortHash("torch", "", "", "")},
		{"own goes before all", "SHUNT_RANK=1 SHUNT_WORLD=2 SHUNT_ID=tcp://h:1 RANK=0 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=x",
			"1/2/-1 tcp://h:1"},
		{"own half", "SHUNT_RANK=1", "!SHUNT_RANK is set but SHUNT_WORLD is not"},
		{"own other half", "SHUNT_WORLD=1", "!SHUNT_WORLD is set but SHUNT_RANK is not"},
		{"id alone", "SHUNT_ID=tcp://h:1", "!SHUNT_ID is set but no rank"},
		{"torchrun", "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node-0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=r",
			"5/8/1 tcp://node-0:29501-29508?job=" + shortHash("torch", "r", "", "")},
		{"torchrun v6", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=29500", "1/2/-1 tcp://[::1]:29501-29508?job=" +
			shortHash("torch", "", "", "")},
		{"torchrun high port", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65530", "1/2/-1 tcp://h:65522-65529?job=" +
			shortHash("torch", "", "", "")},
		{"torchrun and id", "RANK=1 WORLD_SIZE=2 SHUNT_ID=file:///x", "1/2/-1 file:///x"},
		{"torchrun without master", "RANK=1 WORLD_SIZE=2", "!MASTER_ADDR"},
		{"torchrun half", "RANK=1", "!RANK is set but WORLD_SIZE is not"},
		{"torchrun bad rank", "RANK=2 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "!RANK=\"2\" is not a number from 0 to 1"},
		{"torchrun bad world", "RANK=2 WORLD_SIZE=many", "!WORLD_SIZE=\"many\""},
		{"torchrun bad port", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=x", "!MASTER_PORT"},
		{"torchrun bad address", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a/b MASTER_PORT=1", "!is malformed"},
		{"torchrun in mpirun", "RANK=5 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=1 TORCHELASTIC_RUN_ID=r OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "5/8/-1 tcp://h:2-9?job=" + shortHash("torch", "r", "", "")},
		{"torchrun's variables in Slurm", "RANK=5 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=1 SLURM_JOB_ID=77 SLURM_PROCID=0",
			"5/8/-1 tcp://h:2-9?job=" + shortHash("torch", "", "", "77")},
		{"kubernetes", "JOB_COMPLETION_INDEX=3 WORLD_SIZE=4 MASTER_ADDR=job-0.svc MASTER_PORT=29500",
			"3/4/-1 tcp://job-0.svc:29501-29508?job=" + shortHash("torch", "", "", "")},
		{"kubernetes, id", "JOB_COMPLETION_INDEX=1 WORLD_SIZE=4 SHUNT_ID=file:///x", "1/4/-1 file:///x"},
		{"kubernetes, index alone", "JOB_COMPLETION_INDEX=3", "0/1/-1 "},
		{"kubernetes, torchrun in it", "JOB_COMPLETION_INDEX=1 RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1",
			"9/16/1 tcp://h:2-9?job=" + shortHash("torch", "", "", "")},
		{"kubernetes, shunt run in it", "JOB_COMPLETION_INDEX=7 SHUNT_RANK=1 SHUNT_WORLD=2 SHUNT_ID=tcp://h:1",
			"1/2/-1 tcp://h:1"},
		{"kubernetes without master", "JOB_COMPLETION_INDEX=1 WORLD_SIZE=4", "!MASTER_ADDR"},
		{"kubernetes bad index", "JOB_COMPLETION_INDEX=4 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1",
			"!JOB_COMPLETION_INDEX=\"4\" is not a number from 0 to 3"},
		{"kubernetes bad index", "JOB_COMPLETION_INDEX=x WORLD_SIZE=4", "!JOB_COMPLETION_INDEX=\"x\""},
		{"open mpi", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=j", "1/4/1 " + local("openmpi", "j", "")},
		{"open mpi, server", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=j PMIX_SERVER_URI2=b PMIX_SERVER_URI41=a",
			"1/4/-1 " + local("openmpi", "j", "a")},
		{"open mpi 4", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_MCA_ess_base_jobid=j OMPI_MCA_orte_hnp_uri=a",
			"1/4/-1 " + local("openmpi", "j", "a")},
		{"open mpi, hosts", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=j",
			"!several hosts"},
		{"open mpi, master", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "1/4/-1 tcp://h:2-9?job=" + shortHash("torch", "", "", "")},
		{"open mpi, no job", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4", "!PMIX_NAMESPACE"},
		{"open mpi and rank differ", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 RANK=0 WORLD_SIZE=4",
			"!torchrun says rank 0 of 4 (RANK, WORLD_SIZE), Open MPI says rank 1 of 4"},
		{"open mpi and rank agree", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1", "1/4/-1 tcp://h:2-9?job=" + shortHash("torch", "", "", "")},
		{"mpich", "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0", "0/2/0 " +
			local("mpich", fmt.Sprint(parent.pid), parent.start)},
		{"mpich, hosts", "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=1", "!several hosts"},
		{"slurm", "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=1", "3/4/3 " +
			local("slurm", "77", "0")},
		{"slurm, nodes", "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_STEP_NODELIST=gpu[07-09,12],x", "3/4/-1 tcp://gpu07:"},
		{"slurm, rank 0 on another node", "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_NODEID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_STEP_NODELIST=a,b", "!rank 0 is on node 1 of the step"},
		{"slurm, rank 1 on the first node", "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODEID=0 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_STEP_NODELIST=a,b", "1/2/-1 tcp://a:"},
		{"slurm, bad nodes", "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_STEP_NODELIST=gpu[07", "!is malformed"},
		{"slurm batch script", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=77", "0/1/-1 "},
		{"slurm, shell of salloc", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=77 SLURM_STEP_ID=4294967290",
			"0/1/-1 "},
		{"slurm, mpi=pmi2", "PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_STEP_NODELIST=a,b", "3/4/1 tcp://a:"},
		{"slurm around mpich", "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALNRANKS=4 MPI_LOCALRANKID=3 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=4294967291",
			"3/4/3 " + local("mpich", fmt.Sprint(parent.pid), parent.start)},
		{"slurm allocation", "SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=0", "0/1/-1 "},
		{"slurm around open mpi", "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=1 SLURM_JOB_ID=7 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=j", "1/4/-1 " + local("openmpi", "j", "")},
	} {
		vars := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			vars[name] = value
		}
		got, err := FromEnvironment(func(name string) string { return vars[name] })
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if plugin.CodeOf(err) != plugin.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v; want an error with %q", c.name, got, err, want)
			}
			continue
		}
		text := fmt.Sprintf("%d/%d/%d %s", got.Rank, got.World, got.LocalRank, got.URL)
		if err != nil || text != c.want && (!strings.HasSuffix(c.want, ":") || !strings.HasPrefix(text, c.want)) {
			t.Errorf("%s: %s, %v; want %s", c.name, text, err, c.want)
		}
		if got.URL != "" {
			if _, err := parseMeeting(got.URL, ""); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{"a": "a", "a,b": "a", "gpu[07-09,12]": "gpu07", "r[1-2]n[3,4]x,y": "r1n3x",
		"n[5]": "n5", "a.b-c_d": "a.b-c_d"} {
		if got, err := firstHost(list); err != nil || got != want {
			t.Errorf("%q: %q, %v", list, got, err)
		}
	}
	for _, list := range []string{"", ",", "a[", "a[]", "a]b[", "a b", "a/b", "[", strings.Repeat("a", 300)} {
		if got, err := firstHost(list); err == nil {
			t.Errorf("%q: %q", list, got)
		}
	}
}

func FuzzFirstHost(f *testing.F) {
	f.Add("gpu[07-09,12],login1")
	f.Fuzz(func(t *testing.T, list string) {
		host, err := firstHost(list)
		if err == nil && (host == "" || len(host) > 253 || strings.ContainsAny(host, "[]:/@, ")) {
			t.Fatalf("%q: %q", list, host)
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	f.Add("1", "2", "tcp://h:1", "gpu[1-2]", uint8(0))
	f.Fuzz(func(t *testing.T, rank, world, a, b string, which uint8) {
		l := launchers[int(which)%len(launchers)]
		vars := map[string]string{
			l.rank: rank, l.world: world, "MASTER_ADDR": a, "MASTER_PORT": b, "SLURM_STEP_NODELIST": a, "SLURM_JOB_ID": b,
			"SLURM_STEP_ID": b, "PMIX_NAMESPACE": a,
		}
		if which >= 128 {
			delete(vars, "MASTER_ADDR")
		}
		c, err := FromEnvironment(func(name string) string { return vars[name] })
		if err != nil {
			return
		}
		if c.World < 1 || c.World > plugin.MaxWorld || c.Rank < 0 || c.Rank >= c.World {
			t.Fatalf("rank %d of %d", c.Rank, c.World)
		}
		if c.URL != "" {
			if _, err := parseMeeting(c.URL, ""); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Ranks in processes of their own meet by the environment of each launcher.
func TestLaunchersBringRanksTogether(t *testing.T) {
	port := freePort(t)
	for name, env := range map[string]func(rank int) []string{
		"SHUNT_*": func(rank int) []string { return rankEnv(rank, 2, fmt.Sprintf("tcp://127.0.0.1:%d", port)) },
		"torchrun": func(rank int) []string {
			return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=localhost", fmt.Sprint("MASTER_PORT=", port),
				"TORCHELASTIC_RUN_ID=x"}
		},
		"Open MPI": func(rank int) []string {
			return []string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=test-" +
				fmt.Sprint(port)}
		},
		"MPICH": func(rank int) []string { return []string{fmt.Sprint("PMI_RANK=", rank), "PMI_SIZE=2"} },
		"Slurm": func(rank int) []string {
			return []string{fmt.Sprint("SLURM_PROCID=", rank), "SLURM_NTASKS=2", "SLURM_JOB_ID=" + fmt.Sprint(port),
				"SLURM_STEP_ID=0", "SLURM_NNODES=1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ranks := []*process{start(t, "barrier", env(0)...), start(t, "barrier", env(1)...)}
			for rank, p := range ranks {
				p.expect(fmt.Sprintf("joined %d 2", rank))
				p.expect("done")
			}
		})
	}
}

func TestRealOpenMPI(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("Open MPI's mpirun is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", os.Args[0])
	cmd.Env = append(os.Environ(), "SHUNT_TEST_RANK_PROCESS=barrier")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"joined 0 3", "joined 1 3", "joined 2 3"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%q is not in %s, %v", want, out, err)
		}
	}
}

// A shell, or another program, may stand between MPICH's launcher and a rank.
func TestMPICHByWayOfAShell(t *testing.T) {
	proxy := t.TempDir() + "/hydra_pmi_proxy"
	if err := os.Symlink("/bin/sh", proxy); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, proxy, "-c", `
		(export PMI_RANK=0; sh -c '"$0"; true' "$0") &
		PMI_RANK=1 sh -c '(sh -c "$0; true"; true)' "$0"
		wait`, os.Args[0])
	cmd.Env = append(os.Environ(), "SHUNT_TEST_RANK_PROCESS=barrier", "PMI_SIZE=2", "SHUNT_TIMEOUT=5s")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"joined 0 2", "joined 1 2"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%q is not in %s, %v", want, out, err)
		}
	}
}

func TestJoinTakesTheEnvironment(t *testing.T) {
	for _, v := range []string{"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"} {
		t.Setenv(v, "")
	}
	url := "file://" + t.TempDir() + "/id"
	t.Setenv("SHUNT_ID", url)
	t.Setenv("SHUNT_WORLD", "2")
	t.Setenv("SHUNT_RANK", "1")
	noErrors(t, each(2, func(i int) error {
		c := Config{Timeout: 10 * time.Second, Logger: quiet} // everything from the environment
		if i == 0 {
			c = Config{Rank: 0, World: 2, URL: url, Timeout: 10 * time.Second, Logger: quiet}
		}
		s, err := Join(t.Context(), c)
		if err != nil {
			return err
		}
		if s.Rank() != i {
			err = fmt.Errorf("joined as rank %d", s.Rank())
		}
		return errors.Join(err, s.Close())
	}))
}
