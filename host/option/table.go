package option

// Kind is the syntax of a variable's text.
type Kind uint8

// The kinds of value a variable can have.
const (
	Text     Kind = iota // taken as it is
	Integer              // decimal
	Duration             // as 1.5s, 300ms, 2m; a bare number means seconds
	Boolean              // 1, true, yes, on; 0, false, no, off
	Choice               // one of Variable.Choices
	List                 // comma-separated, empty entries ignored
)

func (k Kind) String() string {
	return [...]string{"text", "integer", "duration", "boolean", "choice", "list"}[k]
}

// Variable is one row of the table: everything that there is to know about one
// SHUNT_* variable.
type Variable struct {
	Name    string
	Kind    Kind
	Default string // as a user would write it; "" for unset
	Group   string
	Doc     string   // one or more full sentences
	Choices []string // Choice only
	Min     int64    // Integer: smallest value; Duration: smallest value in nanoseconds
	Max     int64    // Integer: largest value; Duration: largest value in nanoseconds
}

// index numbers the variables; the table below is in this order.
type index int

const (
	idRank index = iota
	idWorld
	idID
	idSecret
	idHostID
	idTransports
	idPluginDir
	idAlgo
	idTuningFile
	idTuningMode
	idNumerics
	idTimeout
	idStall
	idHeartbeat
	idPluginStart
	idSpin
	idPeerRead
	idMaxSMs
	idCheck
	idShareGPU
	idLibcuda
	idLog
	idRecords
	idRecordsDir
	idFailpoints
	idDelays
	idLibrary
	idTorchCache
	idNCCLForward
	idNCCLMemory
	idNCCLReports
	idCommand
	count
)

const (
	second = int64(1e9)
	day    = 24 * 3600 * second
)

// The groups, in the order of the documentation.
var groups = [...]string{"Rendezvous", "Transports", "Choice of algorithm", "Deadlines", "Execution", "Diagnosis",
	"Tools"}

var table = [count]Variable{
	idRank: {Name: "SHUNT_RANK", Kind: Integer, Min: 0, Max: 1023, Group: "Rendezvous",
		Doc: "This process's rank. Set together with SHUNT_WORLD; without both, the rank and world of torchrun, Open MPI, MPICH, Slurm or an indexed job of Kubernetes are taken."},
	idWorld: {Name: "SHUNT_WORLD", Kind: Integer, Min: 1, Max: 1024, Group: "Rendezvous",
		Doc: "Number of ranks of the job."},
	idID: {Name: "SHUNT_ID", Kind: Text, Group: "Rendezvous",
		Doc: "Where the ranks meet: a unique id (of `shunt_get_unique_id`, `shunt.unique_id` or `bootstrap.NewID`), `tcp://host:port`, `file:///path` on a file system that all ranks see, or `unix://@name` for ranks of one host."},
	idSecret: {Name: "SHUNT_SECRET", Kind: Text, Group: "Rendezvous",
		Doc: "Secret of the job, for a meeting place without one: an address, or the place that another launcher gives. Must be equal on all ranks, and should have at least 128 bits, as from `openssl rand -hex 16`: less is warned of."},
	idHostID: {Name: "SHUNT_HOST_ID", Kind: Text, Group: "Rendezvous",
		Doc: "Name of this host, in place of the machine's own identity: ranks with equal names share memory, ranks with different names behave as on two machines."},
	idTransports: {Name: "SHUNT_TRANSPORTS", Kind: List, Group: "Transports",
		Doc: "The transports to use, in order of preference: `builtin:NAME`, `shared:PATH` of a shared object, `process:PATH` of an executable, pinned to a checksum by `process:PATH#sha256=HEX`. A bare name means builtin; `shared:NAME` and `process:NAME` are plugins that were installed with Shunt, as `shunt transports` lists them. Unset: all builtin ones, then those found in SHUNT_PLUGIN_DIR."},
	idPluginDir: {Name: "SHUNT_PLUGIN_DIR", Kind: Text, Group: "Transports",
		Doc: "Directory searched for plugins: every `shunt-transport-*` in it, a shared object if it ends in .so, otherwise an executable."},
	idAlgo: {Name: "SHUNT_ALGO", Kind: Text, Group: "Choice of algorithm",
		Doc: "Forces algorithms by collective and message size: `all_reduce:0-64K=shm/one_shot;all_gather=shm`. Must be equal on all ranks. The page Tune of the guide has the grammar; `shunt explain` shows the effect."},
	idTuningFile: {Name: "SHUNT_TUNING_FILE", Kind: Text, Group: "Choice of algorithm",
		Doc: "JSON file of measured costs that replace the transports' own estimates; `shunt tune` writes one. Rank 0's counts for all ranks."},
	idTuningMode: {Name: "SHUNT_TUNING_MODE", Kind: Choice, Default: "graph", Choices: []string{"graph", "eager"},
		Group: "Choice of algorithm",
		Doc:   "How the program mostly calls operations on GPUs, for measured costs that differ: `graph`, replayed from CUDA graphs, or `eager`, one by one. Rank 0's counts for all ranks."},
	idNumerics: {Name: "SHUNT_NUMERICS", Kind: Choice, Default: "reordered",
		Choices: []string{"fixed", "reordered", "any"}, Group: "Choice of algorithm", // in the order of plugin.Numerics
		Doc: "How far reductions of floats may be from those in rank order, rounded once, where another algorithm, such as NCCL's, is faster. `fixed`: not at all, the same bits at every message size. `reordered`: sums and products of float32 and float64 may be combined in another order, so that how they round depends on the message size. `any`: also what is rounded and how often, NaN and infinities. Rank 0's counts for all ranks."},
	idTimeout: {Name: "SHUNT_TIMEOUT", Kind: Duration, Default: "60s", Min: second / 1000, Max: day, Group: "Deadlines",
		Doc: "Longest time that one operation, or joining, may take. After it the communicator aborts with an error that names the missing rank. Groups of torch have torch's timeout instead; programs over Shunt's libnccl.so.2 have 30 minutes where it is unset."},
	idStall: {Name: "SHUNT_STALL_WARNING", Kind: Duration, Default: "1s", Min: second / 1000, Max: day, Group: "Deadlines",
		Doc: "Time that an operation may wait before the watchdog compares the ranks' records: it then reports the laggard, or ends the operation when ranks disagree about what to run. After each report the next operation is reported from twice that wait on, or half of the timeout."},
	idHeartbeat: {Name: "SHUNT_HEARTBEAT", Kind: Duration, Default: "1s", Min: second / 100, Max: day, Group: "Deadlines",
		Doc: "Interval of the ranks' signs of life. A rank that is silent for ten intervals counts as dead; a rank whose process ends is noticed at once."},
	idPluginStart: {Name: "SHUNT_PLUGIN_START_TIMEOUT", Kind: Duration, Default: "10s", Min: second / 1000, Max: 300 * second,
		Group: "Deadlines",
		Doc:   "Longest time from the start of a plugin in a process of its own to its first reply. A higher value is for plugins that are slow to load, as from a file system of a network; it is at most two thirds of SHUNT_TIMEOUT in any case."},
	idSpin: {Name: "SHUNT_SPIN_COUNT", Kind: Integer, Default: "-1", Min: -1, Max: 1 << 30, Group: "Execution",
		Doc: "Number of times that a waiting rank polls memory before it yields and then sleeps. -1: depends on whether the ranks of this host outnumber its CPUs."},
	idPeerRead: {Name: "SHUNT_PEER_READ", Kind: Choice, Default: "auto", Choices: []string{"auto", "off"},
		Group: "Execution",
		Doc:   "Whether ranks of one host copy long messages straight out of each other's memory (process_vm_readv). `auto`: if a trial on every rank succeeds when a communicator is made; ptrace's rules decide. `off`, on any rank: bytes always go through shared memory."},
	idMaxSMs: {Name: "SHUNT_MAX_SMS", Kind: Integer, Min: 1, Max: 1024, Group: "Execution",
		Doc: "Most multiprocessors of a GPU that the kernels of a communicator occupy at once; the smallest of the ranks' values counts. A low value leaves more to computation and lets more communicators run at the same time, at the cost of bandwidth. Unset: chosen by message size, at most 64. The page GPUs of the guide says how to choose."},
	idCheck: {Name: "SHUNT_CHECK", Kind: Boolean, Default: "off", Group: "Execution",
		Doc: "On GPUs: before every call check that its memory is the GPU's, and compare the ranks' calls before anything is enqueued, for which it is enough that one rank has it on. Slow; finds programs that pass wrong pointers. Without it calls that differ are reported soon after. On host memory every call is compared as it runs, and this option changes nothing. Also logs an error where threads of the library take locks in another order than is written in host/internal/lockorder."},
	idShareGPU: {Name: "SHUNT_SHARE_GPU", Kind: Boolean, Default: "off", Group: "Execution",
		Doc: "Lets ranks use the same GPU, to try a program with fewer GPUs than ranks. Results are the same, but processes that share a GPU take turns on it, so that a call takes milliseconds. Each needs a process of its own: in one process they would share a context, where what one waits for in the driver can hold up the other's kernels. It must be on on all ranks: else ranks that share a GPU are rejected."},
	idLibcuda: {Name: "SHUNT_LIBCUDA", Kind: Text, Group: "Execution",
		Doc: "File name or path of the CUDA driver. Unset: `libcuda.so.1`."},
	idLog: {Name: "SHUNT_LOG", Kind: Choice, Default: "warn", Choices: []string{"error", "warn", "info", "debug"},
		Group: "Diagnosis",
		Doc:   "Lowest severity of messages that are written to standard error; a logger of the program takes precedence."},
	idRecords: {Name: "SHUNT_FLIGHT_RECORDER_SIZE", Kind: Integer, Default: "256", Min: 0, Max: 1 << 20,
		Group: "Diagnosis",
		Doc:   "Number of operations that the flight recorder keeps, for `Records` and `WriteRecords` in Go, `shunt_records` in C, `records` and `write_records` in Python."},
	idRecordsDir: {Name: "SHUNT_RECORDS_DIR", Kind: Text, Group: "Diagnosis",
		Doc: "Directory in which a rank whose communicator fails writes its flight recorder, as `COMMUNICATOR.JOB.RANK.json`; it is created if needed. `shunt run --records` sets it, `shunt records` sums it up. Unset: nothing is written."},
	idFailpoints: {Name: "SHUNT_FAILPOINTS", Kind: Text, Group: "Diagnosis",
		Doc: "Switches faults on, for tests: `name=action(args)@n;…`. `shunt doctor --failpoints` lists the names."},
	idDelays: {Name: "SHUNT_DELAYS", Kind: Text, Group: "Diagnosis",
		Doc: "Delays ranks between the steps of plans, for tests: `ranks=1+2,steps=copy+wait,probability=0.1,longest=2ms,seed=7`; every part is optional. Must be equal on all ranks. No effect on GPUs. The guide for transport authors says more."},
	idLibrary: {Name: "SHUNT_LIBRARY", Kind: Text, Group: "Tools",
		Doc: "The libshunt.so that the Python package loads. Unset: the one in the wheel, then the system's."},
	idTorchCache: {Name: "SHUNT_TORCH_CACHE", Kind: Text, Group: "Tools",
		Doc: "Directory in which the extension of `shunt.torch` is kept once compiled. Unset: `shunt/torch-ext` in the user's cache directory."},
	idNCCLForward: {Name: "SHUNT_NCCL_FORWARD", Kind: Text, Group: "Tools",
		Doc: "What NVIDIA's library does for programs over Shunt's libnccl.so.2: `nothing`, `all`, or a list of `unsupported` and functions. Must be equal on all ranks. Unset: `nothing`."},
	idNCCLMemory: {Name: "SHUNT_NCCL_MEMORY", Kind: Choice, Default: "cuda", Choices: []string{"cuda", "host"},
		Group: "Tools",
		Doc:   "Whose memory programs over Shunt's libnccl.so.2 pass. `host` is to try a program without GPUs."},
	idNCCLReports: {Name: "SHUNT_NCCL_REPORT_DIR", Kind: Text, Group: "Tools",
		Doc: "Directory in which Shunt's libnccl.so.2 notes that a process uses it. `shunt run --nccl` sets it, to say so where none does."},
	idCommand: {Name: "SHUNT_COMMAND", Kind: Text, Group: "Tools",
		Doc: "The shunt command that the examples start their ranks with, and that `python -m shunt` runs. Unset: the examples take the first on the PATH, `python -m shunt` the one in the wheel."},
}

// Variables returns the whole table, in the order of the documentation. The caller
// owns the slice.
func Variables() []Variable { return append([]Variable(nil), table[:]...) }

// Groups returns the names of the groups, in the order of the documentation.
func Groups() []string { return append([]string(nil), groups[:]...) }
