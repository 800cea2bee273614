package cuda

// Load opens a library apart from the one that Open keeps.
func Load(path string) (Driver, error) { return load(path) }

// LoadManagement does the same for NVML.
var LoadManagement = loadManagement
