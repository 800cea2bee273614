package job

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment/environmenttest"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_TEST_JOB_PLUGIN") != "" {
		process.Serve(shm.Transport{})
		return // or it would run the tests until it is killed
	}
	carrier.Register(shm.Transport{})
	goleak.VerifyTestMain(m)
}

func load(variables ...string) *option.Options {
	options, _ := option.Load(variables)
	return options
}

// joined returns the jobs of as many ranks, which are goroutines.
func joined(t *testing.T, world int) []*Job {
	jobs, errs := join(t, world, func(*Config) {})
	require.NoError(t, errors.Join(errs...))
	return jobs
}

// join lets as many ranks join, with changed options.
func join(t *testing.T, world int, change func(*Config)) ([]*Job, []error) {
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	jobs, errs := make([]*Job, world), make([]error, world)
	var ranks sync.WaitGroup
	for rank := range world {
		config := Config{Rank: rank, World: world, ID: id.String(), Timeout: 20 * time.Second, Transports: []string{"shm"},
			Logger: slog.New(slog.DiscardHandler)}
		change(&config)
		jobs[rank], err = New(config)
		require.NoError(t, err)
		ranks.Go(func() { errs[rank] = jobs[rank].Join(t.Context()) })
	}
	ranks.Wait()
	return jobs, errs
}

// watched is a communicator of the given ranks, and the failures that it gets.
type watched struct {
	Member
	failed chan *plugin.Error
	looked chan bool
}

func watch(t *testing.T, j *Job, label string, ranks ...int) *watched {
	engine, err := executor.NewEngine(0, len(ranks))
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	group, err := j.Session.Group(label, ranks)
	require.NoError(t, err)
	w := &watched{failed: make(chan *plugin.Error, 9), looked: make(chan bool, 9)}
	w.Member = Member{Observer: &diagnosis.Observer{World: len(ranks), Label: label, Engine: engine}, Ranks: ranks,
		Group: group, Fail: func(reason *plugin.Error, _ bool) { w.failed <- reason },
		Look: func() {
			select {
			case w.looked <- true:
			default:
			}
		}}
	require.NoError(t, j.Hold(&w.Member))
	j.Watch(&w.Member)
	return w
}

// A failure reaches the communicators that it concerns, numbered as they number ranks, and a forgotten one no more.
func TestMembersHearOfTheirFailures(t *testing.T) {
	jobs := joined(t, 3)
	both, alone, pair := watch(t, jobs[0], "both", 0, 2), watch(t, jobs[0], "alone", 0), watch(t, jobs[0], "pair", 2, 0)
	group, err := jobs[2].Session.Group("pair", []int{2, 0})
	require.NoError(t, err)
	group.Fail(&plugin.Error{Code: plugin.Aborted, Message: "enough"})
	require.ErrorContains(t, <-pair.failed, "enough")
	jobs[0].Forget(&pair.Member)
	jobs[2].Session.Fail(&plugin.Error{Code: plugin.Aborted, Message: "it is over"})
	require.Regexp(t, "^rank 1 of both is gone: .*it is over", (<-both.failed).Message)
	<-alone.looked
	for _, w := range []*watched{both, alone, pair} {
		require.Empty(t, w.failed, w.Label)
	}
	for _, j := range jobs {
		_ = j.end() // some have lost the others
	}
}

// Only the communicators that use the process of a plugin which has ended fail, and tell the others.
func TestMembersLoseTheirPlugin(t *testing.T) {
	old, next := &carrier.Loaded{Info: plugin.Info{Name: "shm"}}, &carrier.Loaded{Info: plugin.Info{Name: "shm"}}
	var reasons []string
	m := Member{Observer: &diagnosis.Observer{Rank: 3}, Loaded: []*carrier.Loaded{next},
		Fail: func(reason *plugin.Error, spread bool) {
			require.True(t, spread)
			reasons = append(reasons, reason.Message)
		}}
	m.lose(old)
	require.Empty(t, reasons)
	m.lose(next)
	require.Equal(t, []string{"rank 3 lost its transport shm: <nil>"}, reasons)
}

// A rank that cannot take rank 0's costs, as one of another version, is every rank's error; the ranks with other costs
// take them otherwise.
func TestCostsThatARankCannotTakeAreEveryRanks(t *testing.T) {
	defer func() { decodeCosts = selector.DecodeCosts }()
	for _, broken := range []bool{true, false} {
		jobs := joined(t, 3)
		jobs[1].Table = selector.New(selector.WithCosts(selector.Costs{Mode: selector.ModeEager}))
		decodeCosts = selector.DecodeCosts
		if broken {
			decodeCosts = func([]byte) (selector.Costs, error) { return selector.Costs{}, errors.New("of the future") }
		}
		var ranks sync.WaitGroup
		errs := make([]error, len(jobs))
		for rank, j := range jobs {
			ranks.Go(func() {
				group, err := j.Session.Group("g", []int{0, 1, 2})
				if err != nil {
					errs[rank] = err
					return
				}
				m := &Member{Observer: &diagnosis.Observer{Rank: rank, World: len(jobs), Label: "g"}, Group: group}
				m.SetTimeout(10 * time.Second)
				_, errs[rank] = j.Survey(t.Context(), m, "init")
			})
		}
		ranks.Wait()
		for rank, err := range errs {
			if broken {
				require.EqualError(t, err, fmt.Sprintf("init on rank %d: rank 1: rank 0's costs: of the future", rank))
			} else {
				require.NoError(t, err)
				require.Equal(t, jobs[0].Table.Digest(), jobs[rank].Table.Digest())
			}
			_ = jobs[rank].end()
		}
	}
}

// A job ends with the last communicator that holds it, whether that was watched or not.
func TestLastReleaseEndsTheJob(t *testing.T) {
	j := joined(t, 1)[0]
	a, b := &Member{}, &Member{}
	require.NoError(t, errors.Join(j.Hold(a), j.Hold(b)))
	j.Forget(a)
	require.NoError(t, j.Release(a))
	require.NoError(t, j.Context.Err())
	require.NoError(t, j.Release(b))
	require.Error(t, j.Context.Err())
}

// A communicator that is begun while the last one is closed gets nothing of the job, of which nobody would end it, and
// ends nothing again: the device may be in use elsewhere.
func TestMemberThatComesTooLateGetsNothing(t *testing.T) {
	driver := cudatest.New(cudatest.Options{Devices: 1})
	defer driver.Close()
	_, err := driver.Retain(0) // by another user of the context
	require.NoError(t, err)
	j, err := New(Config{World: 1, Transports: []string{"shm"}, Memory: plugin.MemoryKindCuda, Driver: driver,
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, j.Join(t.Context()))
	m, late := &Member{}, &Member{}
	require.NoError(t, j.Hold(m))
	require.NoError(t, j.Release(m))
	require.ErrorIs(t, j.Hold(late), plugin.Closed)
	require.NoError(t, driver.Release(0))
}

// Options in code go before the environment, which says what they leave open.
func TestRendezvous(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		id     string // SHUNT_ID
		url    string
		fails  string
	}{
		"in code":              {Config{Rank: 1, World: 2, ID: "tcp://a:1"}, "tcp://b:2", "tcp://a:1", ""},
		"place of environment": {Config{Rank: 1, World: 2}, "tcp://b:2", "tcp://b:2", ""},
		"alone":                {Config{World: 1}, "tcp://b:2", "", ""},
		"alone, at a place":    {Config{World: 1, ID: "env"}, "tcp://b:2", "tcp://b:2", ""},
		"rank too high":        {Config{Rank: 2, World: 2}, "", "", "init: rank 2 of world 2 is out of range, want a world of 1 to"},
		"negative world":       {Config{World: -1}, "", "", "init: rank 0 of world -1 is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			meeting, err := test.config.rendezvous(load("SHUNT_ID="+test.id, "SHUNT_HEARTBEAT=3s"))
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.url, meeting.URL)
			require.Equal(t, test.config.Rank, meeting.Rank)
			require.Equal(t, 3*time.Second, meeting.Heartbeat)
		})
	}
}

// What code leaves open comes from the environment.
func TestLimitsOfOptions(t *testing.T) {
	for want, c := range map[string]Config{
		"init: timeout -1ns is negative":       {Timeout: -1},
		"init: memory kind 9 is unknown":       {Memory: 9},
		"init: a budget of -1 multiprocessors": {MaxSMs: -1},
	} {
		require.ErrorContains(t, c.complete(load()), want)
	}
	c := Config{Algo: "all_reduce=shm"}
	require.NoError(t, c.complete(load("SHUNT_ALGO=all_reduce=nccl", "SHUNT_TIMEOUT=7s", "SHUNT_MAX_SMS=4")))
	require.Equal(t, []any{"all_reduce=shm", 7 * time.Second, 4}, []any{c.Algo, c.Timeout, c.MaxSMs})
}

// Transports named in code go before those that the environment names, and these before what is there.
func TestSpecs(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "shunt-transport-other")
	require.NoError(t, os.WriteFile(other, nil, 0o755))
	named := load("SHUNT_TRANSPORTS=shm,cudaipc", "SHUNT_PLUGIN_DIR="+dir)
	for _, test := range []struct {
		config  Config
		options *option.Options
		want    []string
		named   bool
	}{
		{Config{Transports: []string{"nccl"}}, named, []string{"nccl"}, true},
		{Config{}, named, []string{"shm", "cudaipc"}, true},
		{Config{}, load("SHUNT_PLUGIN_DIR=" + dir), []string{"builtin:shm", "process:" + other}, false},
	} {
		list, named := test.config.specs(test.options)
		require.Equal(t, test.want, list)
		require.Equal(t, test.named, named)
	}
	var log bytes.Buffer
	c := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	list, _ := c.specs(load("SHUNT_PLUGIN_DIR=/does/not/exist"))
	require.Equal(t, []string{"builtin:shm"}, list)
	require.Contains(t, log.String(), "no plugins found")
}

// A tuning file that is not there is an error on rank 0, whose costs count, and a warning elsewhere.
func TestTableWithoutItsFile(t *testing.T) {
	var log bytes.Buffer
	c := Config{TuningFile: "/does/not/exist", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := c.newTable(load(), 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Empty(t, log.String())
	table, err := c.newTable(load(), 1)
	require.NoError(t, err)
	require.NotNil(t, table)
	require.Contains(t, log.String(), "tuning file not read; rank 0's costs count")
	c = Config{Algo: "nonsense=shm"}
	_, err = c.newTable(load(), 1)
	require.ErrorIs(t, err, plugin.InvalidArgument)
}

func TestDeviceOfTheLauncher(t *testing.T) {
	for name, test := range map[string]struct {
		variable, value string
		device          int
		want            string
	}{
		"torchrun":       {"LOCAL_RANK", "1", AutoDevice, "device 1"},
		"Slurm":          {"SLURM_LOCALID", "3", AutoDevice, "device 1"}, // of two devices
		"rank":           {"NOTHING", "", AutoDevice, "device 0"},
		"none such":      {"NOTHING", "", 2, "device 2 is out of range: 2 visible"},
		"negative":       {"NOTHING", "", -2, "device -2 is out of range: 2 visible"},
		"not a number":   {"LOCAL_RANK", "x", AutoDevice, "device 0"},
		"first one wins": {"LOCAL_RANK", "1", 0, "device 0"},
	} {
		t.Run(name, func(t *testing.T) {
			driver := cudatest.New(cudatest.Options{Devices: 2})
			t.Cleanup(driver.Close)
			environmenttest.Set(t, test.variable, test.value)
			j, err := New(Config{World: 1, Memory: plugin.MemoryKindCuda, Driver: driver, Device: test.device,
				Transports: []string{"shm"}, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			if err = j.Join(t.Context()); err == nil {
				require.Equal(t, j.Device, j.Place.GPUs[0].Ordinal)
				err = errors.Join(fmt.Errorf("device %d", j.Device), j.end())
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
