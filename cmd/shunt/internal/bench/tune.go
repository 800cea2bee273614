package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// slowed stands before what the first algorithm does, so that a test can say
// which one is slow.
var slowed = failpoint.New("bench.first_algorithm",
	"before each call of the first algorithm that `shunt tune` measures")

// TuneNames returns the names of what can be tuned: everything but put and get,
// whose windows belong to one communicator.
func TuneNames() []string {
	var names []string
	for i := range tests {
		if tests[i].shape(place{world: 2}, 1).window == noWindow {
			names = append(names, tests[i].name)
		}
	}
	return names
}

// Choice is a communicator's choice for one size of one collective.
type Choice struct {
	Collective string `json:"collective"`
	Bytes      int64  `json:"bytes"`   // of the whole buffer
	Message    int64  `json:"message"` // of one rank, as the selector counts
	Plain      Offer  `json:"plain"`
	// Symmetric is for receive memory that is registered as symmetric; nil where
	// that opens no algorithm.
	Symmetric *Offer `json:"symmetric,omitempty"`
	// Unfit are algorithms whose limits exclude the size, on memory of either kind.
	Unfit    []string `json:"unfit,omitempty"`
	Topology string   `json:"topology,omitempty"` // class of the communicator's
}

// Offer names the algorithm that would run, and those that could.
type Offer struct {
	Chosen string   `json:"chosen"`
	Usable []string `json:"usable"` // cheapest first, so the chosen one where nothing is forced
	Reason string   `json:"reason,omitempty"`
	// Why each of the usable ones was not chosen
	Why map[string]string `json:"why,omitempty"`
	// Spans are the choice at all sizes of such calls
	Spans []Span `json:"spans,omitempty"`
}

// only returns the algorithms that symmetric memory opens.
func (a *Choice) only() []string {
	if a.Symmetric == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Symmetric.Usable),
		func(name string) bool { return slices.Contains(a.Plain.Usable, name) })
}

// Ask returns a communicator's choices for every job of a configuration.
func Ask(comm *host.Communicator, c Config) ([]Choice, error) {
	var list []Choice
	for _, j := range c.jobs() {
		a, err := c.ask(comm, j)
		if err != nil {
			return nil, err
		}
		a.Plain.Spans = c.spans(j, comm.Explain)
		if a.Symmetric != nil {
			a.Symmetric.Spans = c.spans(j, comm.ExplainSymmetric)
		}
		list = append(list, a)
	}
	return list, nil
}

// spans returns the choice at all sizes of calls like a job's; nil where no size can be served.
func (c *Config) spans(j job, explain func(plugin.Collective, plugin.DType, plugin.Op, int64) (selector.Explanation,
	error)) []Span {
	var list []Span
	for at := int64(0); ; {
		e, err := explain(j.test.collective, c.DType, c.Op, at)
		if err != nil {
			return nil
		}
		if list = append(list, Span{e.To, e.Chosen}); e.To == math.MaxInt64 {
			return list
		}
		at = e.To + 1
	}
}

func (c *Config) ask(comm *host.Communicator, j job) (Choice, error) {
	a := Choice{Collective: j.test.name, Message: c.message(j)}
	a.Bytes = j.test.shape(place{c.World, c.Root, c.Root}, j.elements).elements * c.DType.Bytes()
	e, err := comm.Explain(j.test.collective, c.DType, c.Op, a.Message)
	if errors.Is(err, plugin.Unsupported) {
		a.Plain.Reason = err.Error()
		return a, nil
	}
	if err != nil {
		return a, err
	}
	offer := func() Offer {
		o := offerOf(&e, c.Regret)
		for _, rejected := range e.Rejected {
			if rejected.Limits && !slices.Contains(a.Unfit, rejected.Name) {
				a.Unfit = append(a.Unfit, rejected.Name)
			}
		}
		return o
	}
	a.Plain, a.Topology = offer(), e.Topology
	if c.Memory != plugin.MemoryKindCuda {
		return a, nil
	}
	if e, err = comm.ExplainSymmetric(j.test.collective, c.DType, c.Op, a.Message); err != nil {
		return a, err
	}
	if o := offer(); e.Symmetric {
		a.Symmetric = &o
		if len(a.only()) == 0 {
			a.Symmetric = nil
		}
	}
	return a, nil
}

// offerOf returns the algorithms that a choice is between; with barred also those that it is not for their numerics. No
// cost makes one of these run, so that a file of costs must not be made around it.
func offerOf(e *selector.Explanation, barred bool) Offer {
	o := Offer{Chosen: e.Chosen, Why: map[string]string{}}
	if e.Chosen != "" {
		o.Usable = []string{e.Chosen}
	}
	for _, f := range e.Fallback {
		o.Why[f.Name] = fmt.Sprintf("%s (%s)", f.Why, f.Source)
		if barred || !f.Barred {
			o.Usable = append(o.Usable, f.Name)
		}
	}
	return o
}

// message returns the length that the selector counts: the longest that any rank has.
func (c *Config) message(j job) int64 {
	most := int64(0)
	for rank := range c.World {
		most = max(most, j.test.shape(place{c.World, rank, c.Root}, j.elements).count)
	}
	return most * c.DType.Bytes()
}

// AskRank runs a rank that joins by the environment; rank 0 writes the choices to w,
// as JSON.
func AskRank(ctx context.Context, c Config, w io.Writer) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	options, err := c.options(os.Getenv)
	if err != nil {
		return err
	}
	comm, err := host.Init(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if comm.Rank() != 0 {
		return nil
	}
	choices, err := Ask(comm, c)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(choices); err != nil {
		return plugin.Errorf(plugin.System, "reporting to the launcher: %w", err)
	}
	return nil
}

// options returns the options by which a rank of the environment joins. On GPUs it uses
// the device that DeviceOf returns.
func (c *Config) options(getenv func(string) string) (host.Options, error) {
	options := host.Options{Memory: c.Memory, Transports: option.SplitList(c.Transport)}
	if c.Memory != plugin.MemoryKindCuda {
		return options, nil
	}
	place, err := bootstrap.FromEnvironment(getenv)
	if err != nil {
		return options, err
	}
	if options.Driver, err = cuda.Open(); err == nil {
		options.Device, err = DeviceOf(place.Rank, options.Driver)
	}
	return options, err
}

// DeviceOf returns the device of a rank: that of its number, or, where SHUNT_SHARE_GPU lets ranks share devices, the
// ranks take turns over those that there are.
func DeviceOf(rank int, driver cuda.Driver) (int, error) {
	if settings, _ := option.Load(os.Environ()); !settings.ShareGPU() {
		return rank, nil
	}
	devices, err := driver.Devices()
	if err != nil || len(devices) == 0 {
		return rank, err
	}
	return rank % len(devices), nil
}

// algorithms is the rival that consists of every algorithm of every collective,
// each on a communicator that may use no other.
type algorithms struct {
	config *Config
	base   *host.Communicator // which has the choice
	forced []forced           // in the order in which their names were first offerOf
	trends map[string]*trend  // by collective and name
}

// forced is one algorithm.
type forced struct {
	collective, name string
	comm             *host.Communicator
	window           *twin // where its receive memory lies, if that has to be symmetric
}

// openAlgorithms makes a communicator for every algorithm that is usable at any
// size.
func (r *rank) openAlgorithms(ctx context.Context, options host.Options) (_ *algorithms, err error) {
	a := &algorithms{config: &r.config, base: r.comm, trends: map[string]*trend{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	choices, err := Ask(r.comm, r.config)
	if err != nil {
		return nil, err
	}
	for _, choice := range choices {
		for _, name := range choice.Plain.Usable {
			if err := a.open(ctx, r, options, forced{collective: choice.Collective, name: name}, false); err != nil {
				return nil, err
			}
		}
		for _, name := range choice.only() {
			if err := a.open(ctx, r, options, forced{collective: choice.Collective, name: name}, true); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// ofMessages returns the clause that is to hold for a group of messages too: between GPUs it is an all_to_all_v, whose
// algorithms may have other names.
func ofMessages(comm *host.Communicator, f *forced) string {
	if find(f.collective).collective != plugin.Send {
		return ""
	}
	transport, _, _ := strings.Cut(f.name, "/")
	e, err := comm.Explain(plugin.AllToAllV, plugin.Uint8, 0, 0)
	serves := strings.HasPrefix(e.Chosen, transport+"/")
	for _, other := range e.Fallback {
		serves = serves || strings.HasPrefix(other.Name, transport+"/")
	}
	if err != nil || !serves {
		return ""
	}
	return ";" + plugin.AllToAllV.String() + "=" + transport
}

func (a *algorithms) open(ctx context.Context, r *rank, options host.Options, f forced, symmetric bool) error {
	if slices.ContainsFunc(a.forced, func(other forced) bool {
		return other.collective == f.collective &&
			other.name == f.name
	}) {
		return nil
	}
	options.Algo = find(f.collective).collective.String() + "=" + f.name + ofMessages(r.comm, &f)
	comm, err := r.another(ctx, options)
	if err != nil {
		return fmt.Errorf("a communicator for %s of %s: %w", f.name, f.collective, err)
	}
	f.comm = comm
	if d, ok := r.space.(*deviceSpace); ok {
		if symmetric {
			f.window = &twin{device: d, at: d.memory}
			w, err := comm.NewWindow(ctx, d.bytes[recvBuffer])
			if err != nil {
				return errors.Join(err, comm.Close())
			}
			f.window.at[recvBuffer] = area{at: w.Local()}.pointer()
		} else if err := d.register(comm); err != nil {
			return errors.Join(err, comm.Close())
		}
	}
	a.forced = append(a.forced, f)
	return nil
}

// candidates returns the algorithms that take the job's size, without those that
// were given up; but what would run by itself is always measured.
func (a *algorithms) candidates(r *rank, p *prepared) ([]candidate, error) {
	choice, err := a.config.ask(a.base, p.job)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for i, f := range a.forced {
		offer := &choice.Plain
		if f.window != nil {
			offer = choice.Symmetric
		}
		if f.collective != choice.Collective || offer == nil || !slices.Contains(offer.Usable, f.name) {
			continue
		}
		if a.trend(p, f.name).gone && offer.Chosen != f.name {
			continue
		}
		c := candidate{name: f.name, symmetric: f.window != nil}
		slots := p.slots
		if c.symmetric {
			slots = f.window.moved(p.slots)
			c.slots = slots
		}
		c.call = r.shuntCall(f.comm, p, slots)
		if i == 0 {
			first := c.call
			c.call = func(slot int) error {
				slowed.Hit()
				return first(slot)
			}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "no algorithm: %s", choice.Plain.Reason)
	}
	return list, nil
}

func (a *algorithms) close() error {
	var err error
	for _, f := range a.forced {
		err = errors.Join(err, f.comm.Close())
	}
	return err
}

// trend follows an algorithm beside the best one as sizes grow.
type trend struct {
	ratio float64 // of times at the last size
	slow  int     // sizes in a row
	gone  bool    // it is not measured any more
}

// An algorithm is given up that takes more than this multiple of the best one's
// time at this many sizes in a row, without catching up. Short messages take no
// time worth saving, and what is slow for them may be what long ones need.
const (
	hopeless   = 8.0
	enough     = 2
	worthwhile = 64 << 10 // bytes of the whole buffer
)

func (t *trend) see(ratio float64, bytes int64) {
	if bytes >= worthwhile && ratio > hopeless && ratio >= 0.9*t.ratio {
		t.slow++
	} else {
		t.slow = 0
	}
	t.ratio, t.gone = ratio, t.gone || t.slow >= enough
}

func (a *algorithms) trend(p *prepared, name string) *trend {
	key := string(p.job.mode) + " " + p.job.test.name + " " + name
	if a.trends[key] == nil {
		a.trends[key] = &trend{}
	}
	return a.trends[key]
}

// look notes which algorithms are hopeless, alike on all ranks: by the slowest
// rank's times.
func (a *algorithms) look(r *rank, p *prepared) error {
	times := make([]float64, len(p.list))
	for i := range p.list {
		times[i] = median(p.list[i].samples)
	}
	if err := r.slowest(times); err != nil {
		return err
	}
	plain, all := math.Inf(1), math.Inf(1)
	for i, c := range p.list {
		all = min(all, times[i])
		if !c.symmetric {
			plain = min(plain, times[i])
		}
	}
	bytes := p.shape.elements * a.config.DType.Bytes()
	for i, c := range p.list {
		best := plain
		if c.symmetric {
			best = all
		}
		a.trend(p, c.name).see(times[i]/best, bytes)
	}
	return nil
}

// slowest replaces times by the longest that any rank has.
func (r *rank) slowest(times []float64) error {
	data := make([]byte, 8*len(times))
	for i, us := range times {
		binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(us))
	}
	err := r.exchange(data, func(at unsafe.Pointer) error {
		return r.comm.AllReduce(at, at, int64(len(times)), plugin.Float64, plugin.OpMax, r.space.stream())
	})
	for i := range times {
		times[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return err
}

// share gives every rank rank 0's bytes.
func (r *rank) share(data []byte) error {
	return r.exchange(data, func(at unsafe.Pointer) error {
		return r.comm.Broadcast(at, at, int64(len(data)), plugin.Uint8, 0, r.space.stream())
	})
}

// exchange lets an operation work in place on bytes.
func (r *rank) exchange(data []byte, operation func(at unsafe.Pointer) error) error {
	a, err := r.space.buffer(recvBuffer, int64(len(data)))
	if err != nil {
		return err
	}
	if err := r.space.write(a, data); err != nil {
		return err
	}
	if err := operation(a.at); err != nil {
		return err
	}
	if err := r.space.finish(); err != nil {
		return err
	}
	return r.space.read(data, a)
}

// another returns a further communicator of the same ranks, which meet over the first.
func (r *rank) another(ctx context.Context, options host.Options) (_ *host.Communicator, err error) {
	var id bootstrap.UniqueID
	if r.comm.Rank() == 0 {
		var root *bootstrap.Root
		if id, root, err = bootstrap.NewID(""); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil { // else it ends with the ranks
				err = errors.Join(err, root.Close())
			}
		}()
	}
	text := make([]byte, idBytes)
	copy(text, id.String())
	if err := r.share(text); err != nil {
		return nil, err
	}
	options.ID = strings.TrimRight(string(text), "\x00")
	options.Rank, options.World = r.comm.Rank(), r.config.World
	return host.Init(ctx, options)
}

// idBytes is room for the text of a unique id.
const idBytes = 1024
