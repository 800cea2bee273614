package plugin

import "context"

// The contract's version. A plugin with another major version is refused, and one with a minor version before
// VersionOldest, whose plans number slots otherwise; later minor versions add to the contract.
const (
	VersionMajor  = 1
	VersionMinor  = 1
	VersionOldest = 1
)

// Release is the version of Shunt that this package belongs to. The ranks of a communicator run the same one: what they
// tell each other, and which steps an algorithm takes, changes between releases.
const Release = "1.1.0"

// Limits that the host enforces on a plugin's results.
const (
	MaxWorld      = 1024
	MaxAlgorithms = 32
	MaxRegions    = 16
	MaxName       = 64
	MaxHandleData = 256
	MaxPublished  = 2048
	MaxText       = 512 // bytes of a version, doc line or reason; the text of an error is cut there

	DeferredMultiple = 2 << 20 // the bytes of a region of role deferred are a multiple of it
)

// Transport moves bytes between ranks. Implementations are stateless values:
// all state belongs to the endpoints they open.
type Transport interface {
	// Info describes the transport. It never changes while the process lives.
	Info() Info
	// Supports returns the algorithms that can serve a request, or the reason why none can. It takes seconds at most,
	// has no side effect and depends on the request only: every rank returns the same for the same request.
	Supports(Request) Support
	// Open makes this rank's endpoint of one communicator. It is local: it may
	// allocate but not talk to peers.
	Open(context.Context, OpenConfig) (Endpoint, error)
}

// Endpoint is one transport opened for one rank of one communicator. Its
// methods are called from one goroutine at a time.
type Endpoint interface {
	// Regions are the regions that must be mapped before any plan runs: by peers too,
	// but for those of role local. Their number, order, ids (0, 1, …), sizes, kinds and
	// roles are equal on every rank, but for the sizes of those of role local. The slice
	// and its descriptors stay owned by the endpoint. Those of role deferred have no memory
	// yet: see Builder.Needs.
	Regions() []Region
	// Images are the device code that launch steps name; nil where plans launch
	// no kernels.
	Images() []Image
	// Allocate makes a zero-filled region of at least the given bytes for a
	// user (role buffer), aligned to a page. Its ID is chosen by the caller.
	Allocate(ctx context.Context, id uint32, bytes int64) (Region, error)
	// Free releases a region that Allocate made. Peers that still map it keep
	// the memory alive; this rank's mapping is the host's.
	Free(ctx context.Context, id uint32) error
	// Prepare returns the plan of one algorithm that Supports offered. The
	// plan depends on the request's collective, dtype, op, world, rank and
	// memory only, never on its bytes: sizes are slots.
	// The dtype of a collective that only moves bytes is canonical: uint8,
	// float16, int32 or int64, one for each element size. Plans of one endpoint
	// may run concurrently within a group, for different peers or directions, so
	// counters of send and recv belong to one peer and one direction.
	Prepare(ctx context.Context, req Request, algorithm string) (*Plan, error)
	// Close releases everything. It is called once, and its error is reported,
	// never fatal.
	Close() error
}

// Exchanger is an Endpoint of a transport with FeatureExchange: one that needs bytes
// of the other ranks, such as unique ids, worker addresses or remote keys, before it
// can serve them. The host carries them over the rendezvous; both methods are called
// on all ranks, in the same order, and a failure on one is every rank's error. Where plans
// are prepared together, Publish is called for all of them before Connect.
type Exchanger interface {
	// Publish returns the bytes that every rank is to get of this one: at most
	// MaxPublished, and none is allowed. It talks to no peer.
	Publish(ctx context.Context, x Exchange) ([]byte, error)
	// Connect gets what every rank has published for the same exchange, in rank
	// order, this rank's own included. It may talk to peers, as long as it watches
	// its context, which ends at the deadline and when the communicator fails.
	Connect(ctx context.Context, x Exchange, published [][]byte) error
}

// Exchange says what bytes are exchanged for: for the endpoint when all ranks have
// opened theirs (both fields are zero), and for a plan before all ranks prepare it.
type Exchange struct {
	Request   Request
	Algorithm string
}

// Aborter is an Endpoint that is notified when its communicator fails or is aborted: work that it has begun for plans
// of this communicator, in its own threads or processes, is of no use any more and should end soon.
type Aborter interface {
	// Abort may be called while another method runs, and at most once. It returns at
	// once. Close follows.
	Abort(reason string)
}

// Checker is an Endpoint that can fail between calls: its work on a stream continues when no call is inside it.
type Checker interface {
	// Check returns what has failed, or nil, and at once. The host asks a few times a second, while other methods
	// run and until it closes the endpoint; in the builtin and shared carriers, for CUDA memory.
	Check() error
}

// Registrar is an Endpoint of a transport with FeatureRegistration: one that moves the caller's memory by an engine in
// which it must be registered before (pinned pages, remote keys, ncclCommRegister). The endpoint finds the memory of an
// operation among its registrations, by address. Both methods are local: when one rank registers memory says nothing
// about the others.
//
// On CUDA memory the host registers what an operation's send and receive memory lies in before that operation is
// enqueued, the first time; never while the operation's stream is captured. On host memory it registers what users have
// registered, as malloc gives memory no identity. A failure is not the operation's: it runs with memory that is not
// registered. In a process of its own a transport has no such memory; the host does not use the feature there.
type Registrar interface {
	// Register tells of memory and returns a key, which the endpoint chooses. Ranges may overlap, and memory that has
	// been unmapped and mapped again, at one address, has another generation; it is registered after the earlier one
	// was deregistered. It may take milliseconds, and only Abort and Check may run meanwhile. With the code
	// Unsupported, or Timeout, this endpoint is asked no more; after another error it is not asked again for this memory.
	Register(ctx context.Context, m Memory) (key uint64, err error)
	// Deregister ends a registration that no operation and no graph uses any more. The memory may be gone already: the
	// host learns within a second that its owner has freed it. Deregister may run beside all methods but Register and
	// Close. After an error with code Timeout it is called again.
	Deregister(ctx context.Context, key uint64) error
}

// Memory is memory of the caller's: an allocation, or as much of one as its allocator has mapped.
type Memory struct {
	Address    uint64
	Bytes      int64
	Kind       MemoryKind
	Generation uint64 // tells two allocations at one address apart; never 0
}

// Info describes a transport.
type Info struct {
	Name     string // as in SHUNT_ALGO and in messages: a-z, 0-9 and _, at most MaxName bytes
	Version  string
	Features Feature
	Memory   []MemoryKind // kinds of user memory that plans may touch
	Doc      string       // one line
	MaxWorld int          // largest world that it serves; 0: the contract's MaxWorld
}

// Request is one operation as every rank sees it: facts that are equal on all
// ranks, and this rank's number for Prepare.
type Request struct {
	Collective Collective
	DType      DType
	Op         Op
	// of one rank's message: count × element size; for varying counts the largest pair's, where known, else 0
	Bytes    int64
	World    int
	Hosts    int // distinct hosts among the ranks
	Memory   MemoryKind
	Rank     int  // Prepare only; Supports must not look at it
	PeerRead bool // every rank can read every other rank's memory: plans may use SpacePeer
	// NVLink: every two GPUs of the ranks are joined by NVLink, or are one. What is
	// stored at a peer otherwise goes over PCIe, which may tear lines apart.
	NVLink bool
	// Symmetric: the receive memory of every rank lies at one offset of memory
	// that all ranks registered as symmetric and that all have mapped, and is
	// equally long everywhere: plans may use SpacePeerRecv. The callers
	// guarantee that the offsets are equal; a plan should check it (SlotWindow,
	// SlotOffset). Only for all_reduce, broadcast, all_gather, all_to_all and
	// scatter.
	Symmetric bool
	// DeviceCounts: counts and displacements of all_to_all_v lie in device memory,
	// where a kernel reads them when it runs: SlotArrays holds where. Only asked of
	// transports with FeatureDeviceCounts. A kernel takes no count that is negative,
	// or reaches past SlotSendBytes and SlotRecvBytes; see FaultCounts.
	DeviceCounts bool
}

// Support is the result of Supports: algorithms, best first, or a reason.
type Support struct {
	Algorithms []Algorithm
	Reason     string // why there are none; one sentence without a full stop
}

// Algorithm is a named way to do one collective, with its limits and a static
// estimate of its cost: Latency + bytes / Bandwidth.
type Algorithm struct {
	Name      string   // as in SHUNT_ALGO: AlgorithmLetters, fewer than MaxName bytes
	MinBytes  int64    // smallest message, in Request.Bytes
	MaxBytes  int64    // largest message; 0 means no limit
	Latency   float64  // microseconds
	Bandwidth float64  // bytes per microsecond, of Request.Bytes
	Numerics  Numerics // what may differ in its reductions
}

// Numerics says how far results of a reduction may be from those of the tables; each value includes those before it. An
// algorithm whose results may be others runs where nothing else can, where the user names it, or by cost where
// SHUNT_NUMERICS allows it.
type Numerics uint32

// What may differ.
const (
	NumericsTables    Numerics = iota // nothing; SHUNT_NUMERICS=fixed
	NumericsReordered                 // the order in which float32 or float64 are combined; reordered, the default
	NumericsOwn                       // also NaN, infinities, subnormal numbers, what is rounded and how often; any
)

// OpenConfig is the configuration of an endpoint.
type OpenConfig struct {
	Communicator uint64 // equal on all ranks, unique within a job
	Rank, World  int
	Memory       MemoryKind
	Device       int // CUDA ordinal, or -1
	// multiprocessors that kernels may occupy at once, equal on all ranks; 0: the transport decides
	MaxSMs  int
	Options map[string]string // the transport's own options: SHUNT_<NAME>_<KEY>, by KEY in lower case
}

// Region is memory that the host maps, and that peers can map unless its role is local.
type Region struct {
	ID     uint32
	Role   RegionRole
	Memory MemoryKind
	Bytes  int64
	Handle Handle
}

// Handle lets a peer map a region. FD is owned by the maker of the handle; the receiver duplicates it. Generation
// tells two allocations at one address apart and is never 0. The descriptor of kind memfd is a memfd that is, or can
// be, sealed against shrinking; other files are refused.
type Handle struct {
	Kind       HandleKind
	Generation uint64
	Offset     int64  // of the region within what the handle maps
	Bytes      int64  // of what the handle maps
	Data       []byte // at most MaxHandleData
	FD         int    // -1: none
}

// Image is device code: a cubin, fatbin or PTX that launch steps name.
type Image struct {
	Name string
	Data []byte
}
