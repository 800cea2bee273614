package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

func newTopo() *cobra.Command {
	world, hosts := 0, 1
	c := &cobra.Command{
		Use:   "topo",
		Short: "Show where ranks run: hosts, NUMA nodes, CPUs, GPUs",
		Long: `Show where ranks run: hosts, NUMA nodes, CPUs, GPUs.

Without -n: the place of this process, and its GPUs with the paths between them.
With -n: so many ranks are started, meet, and say where they are.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("ranks") && world != 0 {
				if err := checkWorld(world, hosts); err != nil {
					return err
				}
			} else if hosts != 1 {
				return usage("--hosts is for ranks that are started; see -n")
			}
			t := topology.New([]topology.Place{topology.Local()})
			if world > 0 {
				job := launch.Job{World: world, Hosts: hosts, Label: "shunt topo"}
				if err := askRanks(c.Context(), "topo", nil, job, &t); err != nil {
					return classify(err)
				}
			}
			var list []gpu
			if world == 0 {
				list, _, _ = machineGPUs() // doctor says why there is none
			}
			if wantsJSON(c) {
				return printJSON(c, struct {
					*topology.Topology
					GPUs []gpu `json:"gpus,omitempty"` // of this machine
				}{t, list})
			}
			fmt.Fprint(c.OutOrStdout(), t)
			for _, g := range list {
				fmt.Fprintln(c.OutOrStdout(), g)
			}
			return nil
		},
	}
	c.Flags().IntVarP(&world, "ranks", "n", world, "number of ranks to start; 0: none")
	c.Flags().IntVar(&hosts, "hosts", hosts, "pretend that the ranks run on so many hosts")
	return c
}

// topoRank is a rank of topo: it meets the others and, as rank 0, reports all
// places. It loads no transport.
func topoRank(ctx context.Context, _ []byte, report io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	config, err := bootstrap.FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	session, err := bootstrap.Join(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	texts, err := session.All().AllGather(ctx, "places", topology.Local().Encode())
	if err != nil {
		return err
	}
	places := make([]topology.Place, len(texts))
	for rank, text := range texts {
		if places[rank], err = topology.Decode(text); err != nil {
			return err
		}
	}
	if session.Rank() != 0 {
		return nil
	}
	if err := json.NewEncoder(report).Encode(topology.New(places)); err != nil {
		return plugin.Errorf(plugin.System, "reporting: %w", err)
	}
	return nil
}
