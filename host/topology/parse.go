package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// MaxMachine is the most bytes that Parse reads.
const MaxMachine = 16 << 20

// limits of a Machine that another process sent.
const (
	maxMachineGPUs = 256
	maxMachineNICs = 1024
)

// Parse reads a Machine that was saved as JSON, and checks it. Fields that it does not know are errors: the file may be
// of a newer Shunt, or of something else. The error has code InvalidArgument.
func Parse(data []byte) (*Machine, error) {
	m := &Machine{}
	if len(data) > MaxMachine {
		return nil, invalid("%d bytes, want at most %d", len(data), MaxMachine)
	}
	if err := json.Unmarshal(data, &struct {
		Schema *int `json:"schema"`
	}{&m.Schema}); err != nil {
		return nil, invalid("%w", err)
	}
	if m.Schema != Schema {
		return nil, invalid("schema is %d, want %d", m.Schema, Schema)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, invalid("%w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("something follows the topology")
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

func invalid(format string, args ...any) error {
	return plugin.Errorf(plugin.InvalidArgument, "topology: %w", fmt.Errorf(format, args...))
}

// check returns an error for facts that no Scan writes and that would mislead a reader.
func (m *Machine) check() error {
	if len(m.GPUs) > maxMachineGPUs || len(m.NICs) > maxMachineNICs || len(m.NUMA) > maxMachineNICs ||
		len(m.Switches) > maxMachineNICs || len(m.Places) > maxMachineNICs {
		return invalid("%d GPUs, %d NICs, %d NUMA nodes, %d switches and %d places are too many", len(m.GPUs), len(m.NICs),
			len(m.NUMA), len(m.Switches), len(m.Places))
	}
	if len(m.GPUPaths) != len(m.GPUs) || len(m.NICPaths) != len(m.GPUs) {
		return invalid("gpu_paths has %d rows and nic_paths %d, want %d, as many as gpus", len(m.GPUPaths), len(m.NICPaths),
			len(m.GPUs))
	}
	for i, row := range m.GPUPaths {
		if len(row) != len(m.GPUs) || len(m.NICPaths[i]) != len(m.NICs) {
			return invalid("row %d has %d paths to GPUs and %d to NICs, want %d and %d", i, len(row), len(m.NICPaths[i]),
				len(m.GPUs), len(m.NICs))
		}
		for j, p := range row {
			if !slices.Contains(allDistances, p.PCIe) || p.NVLinks < 0 || p.NVLinks > 1000 ||
				!slices.Contains(accesses, p.Access) {
				return invalid("gpu_paths[%d][%d] is malformed: %d NVLinks, pcie %.20q, access %.20q", i, j, p.NVLinks, p.PCIe,
					p.Access)
			}
			if j < i && p != m.GPUPaths[j][i] {
				return invalid("gpu_paths[%d][%d] differs from gpu_paths[%d][%d]", i, j, j, i)
			}
		}
		for j, d := range m.NICPaths[i] {
			if !slices.Contains(allDistances, d) {
				return invalid("nic_paths[%d][%d] is %.20q, want one of %v", i, j, d, allDistances)
			}
		}
	}
	return nil
}
