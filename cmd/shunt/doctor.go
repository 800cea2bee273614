package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

type level string

const (
	fine   level = "ok"
	warn   level = "warn"
	broken level = "fail"
)

func newDoctor() *cobra.Command {
	var points bool
	world := 2
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine and environment can run Shunt",
		Long: `Check that this machine and environment can run Shunt.

Looks at the kernel's facilities, limits, CPUs, GPUs, SHUNT_* variables and
transports, then lets real ranks run a collective, on GPUs too. Exit status 1 when
something is broken; warnings do not count. Exit status 3 when it was interrupted: the
findings are those of the checks until then.`,
		Args: flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if points {
				return listFailpoints(c)
			}
			if err := checkWorld(world, 1); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			line := newProgress(c)
			findings, interrupted := []finding{}, ""
			for _, check := range checks {
				line.show("checking %s", check.name)
				found := check.run(ctx, world)
				if ctx.Err() != nil { // it tells nothing of the machine
					interrupted = check.name
					break
				}
				for _, f := range found {
					f.Check = check.name
					findings = append(findings, f)
				}
			}
			line.clear()
			err := printFindings(c, findings)
			if interrupted != "" {
				return plugin.Errorf(plugin.Aborted, "shunt doctor was interrupted in the check %q", interrupted)
			}
			return err
		},
	}
	c.Flags().BoolVar(&points, "failpoints", false, "list the failpoints of this binary instead")
	c.Flags().IntVarP(&world, "ranks", "n", world, "number of ranks of the trial")
	return c
}

// checks lists the checks of doctor, in order. Those of the machine are in
// machine.go, those of GPUs in gpus.go.
var checks = []struct {
	name string
	run  func(ctx context.Context, world int) []finding
}{
	{"kernel", checkKernel},
	{"shared memory", checkMemfd},
	{"descriptors", checkDescriptors},
	{"CPUs", checkCPUs},
	{"memory", checkMemory},
	{"environment", checkEnvironment},
	{"failpoints", checkFailpoints},
	{"GPUs", checkGPUs},
	{"cudaipc", checkCudaipc},
	{"transports", checkTransports}, // after those that open libraries, see inspectAll
	{"ranks", checkRanks},
	{"ranks on GPUs", checkRanksOnGPUs},
	{"NCCL", checkRanksOverNCCL},
}

func checkEnvironment(context.Context, int) []finding {
	options, warnings := option.Load(os.Environ())
	var list []finding
	for _, w := range warnings {
		list = append(list, finding{Level: warn, Detail: w.String(), Advice: "correct or unset it"})
	}
	settings := options.Set()
	if len(settings) == 0 && len(list) == 0 {
		return []finding{{Level: fine, Detail: "no SHUNT_* variable is set; the defaults hold"}}
	}
	for _, s := range settings {
		list = append(list, finding{Level: fine, Detail: s.Name + "=" + s.Value})
	}
	return list
}

func checkFailpoints(context.Context, int) []finding {
	var list []finding
	if err := failpoint.Problem(); err != nil {
		list = append(list, finding{Level: warn, Detail: err.Error(), Advice: "shunt doctor --failpoints lists the names"})
	}
	for _, p := range failpoint.Points {
		if clause := p.Armed(); clause != "" {
			list = append(list, finding{Level: warn, Detail: clause + " is armed", Advice: "unset " + failpoint.Variable +
				" outside of tests"})
		}
	}
	if len(list) == 0 {
		list = append(list, finding{Level: fine, Detail: "none is armed"})
	}
	return list
}

func checkTransports(ctx context.Context, world int) []finding {
	options, _ := option.Load(os.Environ()) // warned of under environment
	specs, err := presentSpecs(options)
	if err != nil {
		return []finding{{Level: broken, Detail: err.Error(), Advice: "correct SHUNT_PLUGIN_DIR"}}
	}
	if len(specs) == 0 {
		return []finding{{Level: broken, Detail: "there is none", Advice: "name one in SHUNT_TRANSPORTS"}}
	}
	var list []finding
	for _, r := range inspectAll(ctx, specs, world, slog.New(slog.DiscardHandler)) {
		spec := r.Spec
		if r.Rejected != "" {
			list = append(list, finding{Level: broken, Detail: spec + " is rejected: " + r.Rejected,
				Advice: "remove it from SHUNT_TRANSPORTS or SHUNT_PLUGIN_DIR, or repair it"})
			continue
		}
		f := finding{Level: fine, Detail: fmt.Sprintf("%s is %s %s", spec, r.Name, r.Version)}
		if reason := r.serves(); reason != "" {
			f.Detail += "; it serves nothing here: " + reason
			for _, s := range options.Set() { // what the user has set is at fault, not what is absent
				if s.Value != "" && strings.HasPrefix(s.Name, "SHUNT_"+strings.ToUpper(r.Name)+"_") &&
					strings.Contains(reason, s.Name) {
					f.Level, f.Advice = warn, "correct or unset "+s.Name
				}
			}
		}
		list = append(list, f)
	}
	var names []string
	for _, spec := range specs {
		names = append(names, spec[strings.LastIndexByte(spec, ':')+1:])
	}
	for _, w := range options.Unclaimed(names) {
		list = append(list, finding{Level: warn, Detail: w.String()})
	}
	return list
}

// probeResult is the report of rank 0 of the trial.
type probeResult struct {
	Microseconds float64
	Init, First  time.Duration // of joining, and of the first call
	Bytes        int64         // of its GPU that both took
}

// checkRanks lets real ranks join and reduce.
func checkRanks(ctx context.Context, world int) []finding {
	return tryRanks(ctx, world, probeConfig{Memory: plugin.MemoryKindHost})
}

// probeConfig is the configuration of the trial's ranks.
type probeConfig struct {
	Memory plugin.MemoryKind
	Algo   string // SHUNT_ALGO, if not the environment's
}

func tryRanks(ctx context.Context, world int, config probeConfig) []finding {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	var result probeResult
	job := launch.Job{World: world, Label: "shunt doctor", Env: []string{"SHUNT_TIMEOUT=20s"}}
	var said strings.Builder
	err := askRanks(ctx, "probe", config, job, &result, &said)
	if err != nil {
		return []finding{{Level: broken, Detail: err.Error(), Advice: "see what is broken above; SHUNT_LOG=debug says more"}}
	}
	detail := fmt.Sprintf("%d ranks joined in %s; the first all_reduce takes %s, others of 8 bytes %.2f µs", world,
		result.Init.Round(100*time.Microsecond), result.First.Round(100*time.Microsecond), result.Microseconds)
	if config.Memory == plugin.MemoryKindCuda {
		detail += fmt.Sprintf("; each GPU holds %d MiB for it", (result.Bytes+1<<19)>>20)
	}
	list := []finding{{Level: fine, Detail: detail}}
	for line := range strings.Lines(said.String()) { // checkEnvironment has the other warnings
		if _, what, ok := strings.Cut(strings.TrimSpace(line), ` level=WARN msg="tuning file`); ok {
			list = append(list, finding{Level: warn, Detail: "tuning file" + strings.Replace(what, `"`, "", 1),
				Advice: "shunt tune measures this machine; shunt doctor -n tries other numbers of ranks"})
		}
	}
	return list
}

// probeRank runs a rank of the trial: it joins, reduces, checks the sum and times a few
// more.
func probeRank(ctx context.Context, text []byte, report io.Writer) (err error) {
	var config probeConfig
	if err := readConfig(text, &config); err != nil {
		return err
	}
	options := host.Options{Memory: config.Memory, Algo: config.Algo}
	if options.Device, err = deviceOfRank(config.Memory); err != nil {
		return err
	}
	var word probeWord = new(hostWord)
	if config.Memory == plugin.MemoryKindCuda {
		if word, err = newDeviceWord(options.Device); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, word.close()) }()
	before, err := word.free()
	if err != nil {
		return err
	}
	began := time.Now()
	comm, err := host.Init(ctx, options)
	if err != nil {
		return err
	}
	result := probeResult{Init: time.Since(began)}
	defer func() { err = errors.Join(err, comm.Close()) }()
	const rounds = 1000
	p := word.pointer()
	for round := range rounds {
		began = time.Now()
		if err := word.set(int64(comm.Rank()) + 1); err != nil {
			return err
		}
		if err := comm.AllReduce(p, p, 1, plugin.Int64, plugin.OpSum, nil); err != nil {
			return err
		}
		value, err := word.get()
		if err != nil {
			return err
		}
		if want := int64(comm.World()) * int64(comm.World()+1) / 2; value != want {
			return plugin.Errorf(plugin.Internal, "all_reduce of 1 to %d gave %d on rank %d, not %d", comm.World(), value,
				comm.Rank(), want)
		}
		if round == 0 {
			result.First = time.Since(began)
		}
	}
	after, err := word.free()
	if err != nil {
		return err
	}
	if err := word.set(0); err != nil {
		return err
	}
	began = time.Now()
	for range rounds {
		if err := comm.AllReduce(p, p, 1, plugin.Int64, plugin.OpSum, nil); err != nil {
			return err
		}
	}
	if _, err := word.get(); err != nil { // waits for what is on the stream
		return err
	}
	if comm.Rank() != 0 {
		return nil
	}
	result.Microseconds, result.Bytes = time.Since(began).Seconds()*1e6/rounds, before-after
	if err := json.NewEncoder(report).Encode(result); err != nil {
		return plugin.Errorf(plugin.System, "reporting: %w", err)
	}
	return nil
}

func printFindings(c *cobra.Command, findings []finding) error {
	failed := false
	for _, f := range findings {
		failed = failed || f.Level == broken
	}
	if wantsJSON(c) {
		if err := printJSON(c, findings); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(c.OutOrStdout(), "%-4s  %-14s %s\n", f.Level, f.Check,
				strings.ReplaceAll(f.Detail, "\n", "\n"+strings.Repeat(" ", 21)))
			if f.Advice != "" {
				fmt.Fprintf(c.OutOrStdout(), "%20s → %s\n", "", f.Advice)
			}
		}
	}
	if failed {
		return &exitError{code: exitWrong}
	}
	return nil
}

// listedPoint is a place where faults can be injected.
type listedPoint struct {
	Name  string `json:"name"`
	Doc   string `json:"doc"`
	Armed string `json:"armed,omitempty"`
}

func listFailpoints(c *cobra.Command) error {
	var points []listedPoint
	for _, p := range failpoint.Points {
		points = append(points, listedPoint{p.Name, p.Doc, p.Armed()})
	}
	if wantsJSON(c) {
		return printJSON(c, points)
	}
	for _, p := range points {
		fmt.Fprintf(c.OutOrStdout(), "%-24s %s\n", p.Name, p.Doc)
	}
	return nil
}
