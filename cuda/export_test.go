package cuda

// Load opens a library apart from the one that Open keeps.
func Load(path string) (Driver, error) { return load(path) }

// LoadCompiler and LoadManagement do the same for NVRTC and NVML.
var (
	LoadCompiler   = loadCompiler
	LoadManagement = loadManagement
)
