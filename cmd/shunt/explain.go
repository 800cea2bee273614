package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// explainConfig is the configuration of the ranks of explain.
type explainConfig struct {
	Collectives []plugin.Collective
	DType       plugin.DType
	Op          plugin.Op
	Bytes       []int64 // nil: every range of sizes with the same choice
	Transports  []string
	Memory      plugin.MemoryKind
	Plan        bool // show the plans too
}

// explained is one result of explain: a choice, or the reason why there is none.
type explained struct {
	*selector.Explanation
	Plans       []string `json:"plans,omitempty"`        // by rank
	DeviceBytes int64    `json:"device_bytes,omitempty"` // of rank 0's GPU that the communicator holds
	Error       string   `json:"error,omitempty"`
}

func newExplain() *cobra.Command {
	world, hosts := 4, 1
	dtype, op := dtypeFlag(plugin.Float32), opFlag(plugin.OpSum)
	var sizes sizesFlag
	var transports []string
	var algo string
	var plan bool
	memory := memoryFlag{auto: true}
	c := &cobra.Command{
		Use:   "explain [COLLECTIVE...]",
		Short: "Say which transport and algorithm a call would use, and why no other",
		Long: `Say which transport and algorithm a call would use, and why no other.

Makes a communicator of real ranks under the present environment (SHUNT_ALGO,
SHUNT_TRANSPORTS, the tuning file), and prints for every collective and size which
algorithm is chosen, what it would fall back to, and why no other can serve it.
Without --bytes, all ranges of sizes with the same choice are shown. Exit status 1
when nothing can serve a call.

With --plan, the plan of each rank follows: the list of steps that a call runs.
A step names the memory it touches as [send], [recv] or [rank 1 region 0+64],
semaphores and kernels likewise; what a call fills in has a name (count,
send_bytes, recv_at[2]), and t0, t1 and so on are computed by earlier steps.`,
		Example: "  shunt explain all_reduce -n 2 --bytes 64K --plan\n  shunt explain all_reduce --bytes 8,64K,16M\n  SHUNT_ALGO='all_reduce=shm/two_shot' shunt explain all_reduce -n 2",
		RunE: func(c *cobra.Command, args []string) error {
			config := explainConfig{DType: plugin.DType(dtype), Op: plugin.Op(op), Bytes: sizes, Transports: transports,
				Plan: plan}
			for _, name := range args {
				v, err := plugin.ParseCollective(name)
				if err != nil {
					return known([]string{name}, names(plugin.Collectives()), "unknown collective %q: %s")
				}
				config.Collectives = append(config.Collectives, v)
			}
			if len(args) == 0 {
				config.Collectives = plugin.Collectives()
			}
			if err := areThere("transports", transports...); err != nil {
				return err
			}
			kind, gpus, err := memory.choose(c, strings.Join(transports, ","))
			if err != nil {
				return err
			}
			if kind == plugin.MemoryKindCuda && !c.Flags().Changed("ranks") {
				world = min(gpus, 8)
			}
			config.Memory = kind
			if err := checkWorld(world, hosts); err != nil {
				return err
			}
			job, err := gpuJob(kind, world, gpus, launch.Job{Hosts: hosts, Label: "shunt explain"})
			if err != nil {
				return err
			}
			if algo != "" {
				job.Env = append(job.Env, "SHUNT_ALGO="+algo)
			}
			var explanations []explained
			if err := askRanks(c.Context(), "explain", config, job, &explanations, c.ErrOrStderr()); err != nil {
				return err
			}
			return printExplained(c, explanations)
		},
	}
	f := c.Flags()
	f.IntVarP(&world, "ranks", "n", world, "number of ranks; on GPUs the default is all of them, 8 at most")
	f.Var(&memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.IntVar(&hosts, "hosts", hosts, "pretend that the ranks run on this many hosts")
	f.Var(&dtype, "dtype", "type of the elements")
	f.Var(&op, "op", "reduction op")
	f.Var(&sizes, "bytes", "sizes of one rank's message, as 8,64K,16M")
	f.StringSliceVar(&transports, "transports", nil, "set SHUNT_TRANSPORTS")
	f.Var((*override)(&algo), "algo", "set SHUNT_ALGO")
	f.BoolVar(&plan, "plan", false, "show the steps of each rank's plan")
	return c
}

func printExplained(c *cobra.Command, explanations []explained) error {
	served := true
	for _, a := range explanations {
		served = served && a.Error == "" && a.Chosen != ""
	}
	if wantsJSON(c) {
		if err := printJSON(c, explanations); err != nil {
			return err
		}
	} else {
		for _, a := range explanations {
			if a.Error != "" {
				fmt.Fprintln(c.OutOrStdout(), a.Error)
				continue
			}
			fmt.Fprintln(c.OutOrStdout(), a.Explanation)
			for _, plan := range a.Plans {
				fmt.Fprintln(c.OutOrStdout(), plan)
			}
		}
		if len(explanations) > 0 && explanations[0].DeviceBytes > 0 {
			fmt.Fprintf(c.OutOrStdout(), "the communicator holds %s of each GPU\n", selector.FormatSize(explanations[0].DeviceBytes))
		}
	}
	if !served {
		return &exitError{code: exitWrong}
	}
	return nil
}

// explainRank runs a rank of explain; rank 0 writes the report.
func explainRank(ctx context.Context, text []byte, report io.Writer) (err error) {
	var config explainConfig
	if err := readConfig(text, &config); err != nil {
		return err
	}
	options := host.Options{Transports: config.Transports, Memory: config.Memory}
	if options.Device, err = deviceOfRank(config.Memory); err != nil {
		return err
	}
	comm, err := host.Init(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if comm.Rank() != 0 && !config.Plan { // plans are every rank's
		return nil
	}
	var explanations []explained
	for _, v := range config.Collectives {
		sizes, all := config.Bytes, false
		if len(sizes) == 0 {
			sizes, all = []int64{0}, true
		}
		for i := 0; i < len(sizes); i++ {
			e, err := comm.Explain(v, config.DType, config.Op, sizes[i])
			if err != nil {
				explanations = append(explanations, explained{Error: err.Error()})
				break
			}
			explanation := explained{Explanation: &e}
			if config.Plan && e.Chosen != "" {
				if explanation.Plans, err = comm.PlanTexts(v, config.DType, config.Op, sizes[i]); err != nil {
					return err
				}
			}
			explanations = append(explanations, explanation)
			if all && e.To < math.MaxInt64 {
				sizes = append(sizes, e.To+1)
			}
		}
	}
	for i := range explanations {
		explanations[i].DeviceBytes = comm.DeviceBytes()
	}
	if err := json.NewEncoder(report).Encode(explanations); err != nil {
		return plugin.Errorf(plugin.System, "reporting: %w", err)
	}
	return nil
}

// splitList splits at commas and drops what is empty.
func splitList(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}
