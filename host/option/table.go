package option

// Kind is how the text of a variable is read.
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
	idTimeout
	idStall
	idHeartbeat
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
	idCommand
	idPython
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
		Doc: "This process's rank. Set together with SHUNT_WORLD; without both, the rank and world of torchrun, Open MPI, MPICH or Slurm are taken."},
	idWorld: {Name: "SHUNT_WORLD", Kind: Integer, Min: 1, Max: 1024, Group: "Rendezvous",
		Doc: "Number of ranks of the job."},
	idID: {Name: "SHUNT_ID", Kind: Text, Group: "Rendezvous",
		Doc: "Where the ranks meet: a unique id (of `shunt_get_unique_id`, `shunt.unique_id` or `bootstrap.NewID`), `tcp://host:port`, or `file:///path` on a file system that all ranks see."},
	idSecret: {Name: "SHUNT_SECRET", Kind: Text, Group: "Rendezvous",
		Doc: "What only the ranks of this job know, where the meeting place is an address or comes from another launcher and so carries no secret of its own. Equal on all ranks, and of at least 128 bits, as from `openssl rand -hex 16`."},
	idHostID: {Name: "SHUNT_HOST_ID", Kind: Text, Group: "Rendezvous",
		Doc: "Name of this host, where the machine's own identity is not wanted: ranks with equal names share memory, ranks with different names behave as on two machines."},
	idTransports: {Name: "SHUNT_TRANSPORTS", Kind: List, Group: "Transports",
		Doc: "The transports to use, in order of preference: `builtin:NAME`, `shared:PATH` of a shared object, `process:PATH` of an executable, pinned to a checksum by `process:PATH#sha256=HEX`. A bare name means builtin. Unset: all builtin ones, then those found in SHUNT_PLUGIN_DIR."},
	idPluginDir: {Name: "SHUNT_PLUGIN_DIR", Kind: Text, Group: "Transports",
		Doc: "Directory searched for plugins: every `shunt-transport-*` in it, a shared object if it ends in .so, otherwise an executable."},
	idAlgo: {Name: "SHUNT_ALGO", Kind: Text, Group: "Choice of algorithm",
		Doc: "Forces algorithms by collective and message size: `all_reduce:0-64K=shm/one_shot;all_gather=shm`. Must be equal on all ranks. The grammar is in the guide; `shunt explain` shows the effect."},
	idTuningFile: {Name: "SHUNT_TUNING_FILE", Kind: Text, Group: "Choice of algorithm",
		Doc: "JSON file of measured costs that replace the transports' own estimates; `shunt tune` writes one. Must be equal on all ranks."},
	idTimeout: {Name: "SHUNT_TIMEOUT", Kind: Duration, Default: "60s", Min: second / 1000, Max: day, Group: "Deadlines",
		Doc: "Longest time one operation, or joining, may take. Then the communicator aborts with an error that names the rank that was waited for."},
	idStall: {Name: "SHUNT_STALL_WARNING", Kind: Duration, Default: "1s", Min: second / 1000, Max: day, Group: "Deadlines",
		Doc: "How long an operation may wait before the watchdog compares the ranks' records: it then reports the laggard, or ends the operation when ranks disagree about what to run."},
	idHeartbeat: {Name: "SHUNT_HEARTBEAT", Kind: Duration, Default: "1s", Min: second / 100, Max: day, Group: "Deadlines",
		Doc: "Interval of the ranks' signs of life. A rank that is silent for ten intervals counts as dead; a rank whose process ends is noticed at once."},
	idSpin: {Name: "SHUNT_SPIN_COUNT", Kind: Integer, Default: "-1", Min: -1, Max: 1 << 30, Group: "Execution",
		Doc: "How many times a waiting rank looks at memory before it yields and then sleeps. -1: chosen by whether the ranks of this host outnumber its CPUs."},
	idPeerRead: {Name: "SHUNT_PEER_READ", Kind: Choice, Default: "auto", Choices: []string{"auto", "off"},
		Group: "Execution",
		Doc:   "Whether ranks of one host copy long messages straight out of each other's memory (process_vm_readv). `auto`: where every rank finds, when a communicator is made, that it can, as ptrace's rules decide. `off`, on any rank: bytes always go through shared memory."},
	idMaxSMs: {Name: "SHUNT_MAX_SMS", Kind: Integer, Min: 1, Max: 1024, Group: "Execution",
		Doc: "Most multiprocessors of a GPU that the kernels of a communicator occupy at once; the smallest of the ranks' values counts. Less leaves more to computation beside it and lets more communicators run at the same time, and costs bandwidth. Unset: chosen by message size, at most 64. The guide says how to choose."},
	idCheck: {Name: "SHUNT_CHECK", Kind: Boolean, Default: "off", Group: "Execution",
		Doc: "On GPUs: before every call look whether its memory is the GPU's, and compare what the ranks call before anything is enqueued. Without it ranks that disagree are told soon after. Slow; finds programs that pass wrong pointers. On host memory every call is compared as it runs, and this option changes nothing."},
	idShareGPU: {Name: "SHUNT_SHARE_GPU", Kind: Boolean, Default: "off", Group: "Execution",
		Doc: "Let ranks use the same GPU, to try a program where there are fewer GPUs than ranks. Results are the same, but processes that share a GPU take turns on it, so that a call takes milliseconds. Off: such ranks are refused."},
	idLibcuda: {Name: "SHUNT_LIBCUDA", Kind: Text, Group: "Execution",
		Doc: "File name or path of the CUDA driver. Unset: `libcuda.so.1`."},
	idLog: {Name: "SHUNT_LOG", Kind: Choice, Default: "warn", Choices: []string{"error", "warn", "info", "debug"},
		Group: "Diagnosis",
		Doc:   "Least severe message that is written to standard error when the program brings no logger of its own."},
	idRecords: {Name: "SHUNT_FLIGHT_RECORDER_SIZE", Kind: Integer, Default: "256", Min: 0, Max: 1 << 20,
		Group: "Diagnosis",
		Doc:   "How many of the last operations the flight recorder keeps, for `Records` and `WriteRecords` in Go, `shunt_records` in C, `records` and `write_records` in Python."},
	idRecordsDir: {Name: "SHUNT_RECORDS_DIR", Kind: Text, Group: "Diagnosis",
		Doc: "Directory in which a rank whose communicator fails writes what `WriteRecords` writes, as `COMMUNICATOR.RANK.json`; it is made if need be. `shunt run --records` sets it, `shunt records` sums it up. Unset: nothing is written."},
	idFailpoints: {Name: "SHUNT_FAILPOINTS", Kind: Text, Group: "Diagnosis",
		Doc: "Switches faults on, for tests: `name=action(args)@n;…`. `shunt doctor --failpoints` lists the names."},
	idDelays: {Name: "SHUNT_DELAYS", Kind: Text, Group: "Diagnosis",
		Doc: "Makes ranks late between the steps of plans, for tests: `ranks=1+2,steps=copy+wait,probability=0.1,longest=2ms,seed=7`, each part of which may be left out. Equal on all ranks. On GPUs it changes nothing. The guide for transport authors says more."},
	idLibrary: {Name: "SHUNT_LIBRARY", Kind: Text, Group: "Tools",
		Doc: "The libshunt.so that the Python package loads, and that its wheel is built with. Unset: the one in the wheel, then the system's."},
	idCommand: {Name: "SHUNT_COMMAND", Kind: Text, Group: "Tools",
		Doc: "The shunt command that the examples start their ranks with. Unset: the first on the PATH."},
	idPython: {Name: "SHUNT_PYTHON", Kind: Text, Group: "Tools",
		Doc: "The Python interpreter that tests run Python programs with."},
}

// Variables is the whole table, in the order of the documentation. The caller
// owns the slice.
func Variables() []Variable { return append([]Variable(nil), table[:]...) }

// Groups are the names of the groups, in the order of the documentation.
func Groups() []string { return append([]string(nil), groups[:]...) }
