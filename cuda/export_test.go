package cuda

// Load opens a library apart from the one that Open keeps.
func Load(path string) (Driver, error) { return load(path) }

// LoadManagement does the same for NVML, and opens it.
func LoadManagement(path string) (Management, error) {
	if err := loadManagement(path); err != nil {
		return nil, err
	}
	return newManagement()
}
