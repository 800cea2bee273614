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
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/printable"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/topoview"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
)

func newTopo() *cobra.Command {
	world, hosts := 0, 1
	var from, picture string
	c := &cobra.Command{
		Use:   "topo",
		Short: "Show the machine: GPUs, NVLinks, NUMA nodes, network adapters, and where ranks run",
		Long: `Show the machine: GPUs, NVLinks, NUMA nodes, network adapters, and where ranks run.

The matrix says how every pair of devices is connected, in the words of
"nvidia-smi topo -m". --json prints all that is known; --from shows the machine of
a file of --json instead. With -n, ranks are started, meet, and say where they run.`,
		Args: flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("ranks") && world != 0 {
				if err := checkWorld(world, hosts); err != nil {
					return err
				}
			} else if hosts != 1 {
				return usage("--hosts is for ranks that are started; see -n")
			}
			if from != "" && world > 0 {
				return usage("--from and -n exclude each other: the one shows a file, the other starts ranks")
			}
			m, err := machine(from)
			if err != nil {
				return err
			}
			if world > 0 {
				var t topology.Topology
				job := launch.Job{World: world, Hosts: hosts, Label: "shunt topo"}
				if err := askRanks(c.Context(), "topo", nil, job, &t, c.ErrOrStderr()); err != nil {
					return err
				}
				m.Places = t.Places
			}
			if picture != "" {
				if err := outfile.Write(picture, topoview.SVG(m)); err != nil {
					return plugin.Errorf(plugin.System, "writing the picture: %w", err)
				}
			}
			if wantsJSON(c) {
				return printJSON(c, m)
			}
			if from != "" { // texts of a file may be anything
				clean := &topology.Machine{}
				if err := printable.Copy(clean, m); err != nil {
					return err
				}
				m = clean
			}
			if len(m.Places) > 0 {
				fmt.Fprint(c.OutOrStdout(), topology.New(m.Places))
				if world > 0 {
					return nil
				}
			}
			return topoview.Text(c.OutOrStdout(), m)
		},
	}
	c.Flags().IntVarP(&world, "ranks", "n", world, "number of ranks to start; 0: none")
	c.Flags().IntVar(&hosts, "hosts", hosts, "pretend that the ranks run on this many hosts")
	c.Flags().Var((*outputFile)(&picture), "svg", "also draw a picture into this file")
	c.Flags().StringVar(&from, "from", from, "show a file of --json, - for standard input, instead of this machine")
	return c
}

// machine returns this machine's topology, or that of a file.
func machine(from string) (*topology.Machine, error) {
	if from == "" {
		return topology.Scan(topology.System(openManagement)), nil
	}
	file := os.Stdin
	if from != "-" {
		var err error
		if file, err = os.Open(from); err != nil {
			return nil, plugin.Errorf(plugin.InvalidArgument, "--from: %w", err)
		}
		defer func() { _ = file.Close() }()
	}
	data, err := io.ReadAll(io.LimitReader(file, topology.MaxMachine+1))
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "--from %s: %w", from, err)
	}
	m, err := topology.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", from, err)
	}
	return m, nil
}

// topoRank runs a rank of topo: it meets the others and, as rank 0, reports all places.
// It loads no transport.
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
