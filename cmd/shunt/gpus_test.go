package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/host/topology/topologytest"
	"github.com/shunt-ccl/shunt/internal/builttest"
)

// noDevices is a CUDA driver that starts and finds no GPU.
type noDevices struct{ cuda.Driver }

func (noDevices) Version() int                        { return 12080 }
func (noDevices) Devices() ([]cuda.DeviceInfo, error) { return nil, nil }

// A machine without GPUs is fine, whatever library of a driver it has. One whose driver fails is broken, and so is one
// whose GPUs CUDA does not see, unless the user hides them.
func TestDoctorOfDriversThatFail(t *testing.T) {
	fails := func(r cuda.Result) func() (cuda.Driver, error) {
		return func() (cuda.Driver, error) {
			return nil, cuda.Wrap(&cuda.Error{Call: "cuInit", Result: r, Name: fmt.Sprint("error ", int(r)), Text: "text"})
		}
	}
	noLibrary := func() (cuda.Driver, error) { return nil, fmt.Errorf("%w: libcuda.so.1", cuda.ErrNoDriver) }
	noFunction := func() (cuda.Driver, error) { return nil, errors.New("cuInit: the CUDA driver has no function cuInit") }
	noNVML := func() (cuda.Management, error) { return nil, errors.New("no NVML") }
	for _, c := range []struct {
		name          string
		open          func() (cuda.Driver, error)
		bare, managed level // where NVML fails too, and where it lists GPUs
		hidden        level // where it lists them and CUDA_VISIBLE_DEVICES is empty
		advice        string
	}{
		{"no library", noLibrary, fine, broken, broken, "NVIDIA_DRIVER_CAPABILITIES"},
		{"stub", fails(34), fine, broken, broken, "stub"},
		{"no device", fails(100), fine, broken, warn, "/dev/nvidia"},
		{"0 devices", func() (cuda.Driver, error) { return noDevices{}, nil }, fine, broken, warn, "/dev/nvidia"},
		{"not a driver", noFunction, broken, broken, broken, "WSL"},
		{"not ready", fails(802), broken, broken, broken, "nvidia-fabricmanager"},
		{"driver mismatch", fails(803), broken, broken, broken, "reboot"},
		{"compat", fails(804), broken, broken, broken, "cuda-compat"},
		{"unknown", fails(999), broken, broken, broken, "nvidia-uvm"},
		{"another error", fails(500), broken, broken, broken, "WSL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			look := func(openManagement func() (cuda.Management, error)) finding {
				s := topologytest.DGXH200().Sources()
				s.OpenDriver = c.open
				if openManagement != nil {
					s.OpenManagement = openManagement
				}
				found := gpuFindings(s)
				require.Len(t, found, 1)
				return found[0]
			}
			t.Setenv("CUDA_VISIBLE_DEVICES", "") // what it was comes back
			hidden := look(nil)
			require.Equal(t, c.hidden, hidden.Level, hidden.Detail)
			if c.hidden == warn {
				require.Contains(t, hidden.Advice, "CUDA_VISIBLE_DEVICES= hides them")
			}
			require.Equal(t, c.bare, look(noNVML).Level)
			require.NoError(t, os.Unsetenv("CUDA_VISIBLE_DEVICES"))
			managed, bare := look(nil), look(noNVML)
			require.Equal(t, c.managed, managed.Level, managed.Detail)
			require.Contains(t, managed.Detail, "CUDA sees none of 8: ")
			require.Contains(t, managed.Advice, c.advice)
			require.Equal(t, c.bare, bare.Level, bare.Detail)
			if c.bare == broken {
				require.Contains(t, bare.Advice, c.advice)
			}
			s := topologytest.DGXH200().Sources()
			s.OpenDriver, s.OpenManagement = c.open, noNVML
			if why := blindness(s); c.bare == fine { // a machine without GPUs is no news
				require.Empty(t, why)
			} else {
				require.Contains(t, why, c.advice)
			}
		})
	}
}

// Host memory that nobody asked for is named on a machine whose driver fails: its figures are not those of GPUs.
func TestHostMemoryForWantOfADriver(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no compiler: cc is not installed")
	}
	folder := t.TempDir()
	source, library := filepath.Join(folder, "driver.c"), filepath.Join(folder, "libcuda.so.1")
	require.NoError(t, os.WriteFile(source, []byte("int cuInit(unsigned flags) { (void)flags; return RESULT; }\n"+
		"int cuDriverGetVersion(int *version) { *version = 13000; return 0; }\n"), 0o600))
	look := func(result int, memory string) string {
		text, err := builttest.Command("cc", "-shared", "-fPIC", fmt.Sprint("-DRESULT=", result), "-o", library, source).
			CombinedOutput()
		require.NoError(t, err, string(text))
		c := exec.Command(os.Args[0], "bench", "-n", "2", "--memory", memory, "--max", "8", "--collective", "barrier")
		c.Env = append(os.Environ(), "SHUNT_LIBCUDA="+library)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		require.NoError(t, c.Run(), stderr.String())
		return stderr.String()
	}
	require.Contains(t, look(802, "auto"), "shunt bench: host memory: cuInit: ")
	require.Contains(t, look(802, "auto"), "nvidia-fabricmanager")
	require.NotContains(t, look(802, "host"), "cuInit")
	require.NotContains(t, look(34, "auto"), "cuInit") // a machine without GPUs, whose library is the toolkit's
}

// A GPU that NVML cannot describe, and what else is not known, is no secret of topo.
func TestDoctorOfLostGPUs(t *testing.T) {
	warnings := func(s topology.Sources) (list []string) {
		for _, f := range gpuFindings(s) {
			if f.Level == warn {
				list = append(list, f.Detail)
			}
		}
		return list
	}
	b := topologytest.DGXH200()
	require.Empty(t, warnings(b.Sources()))
	b.Visible, b.Lost[3] = []int{0, 1, 2, 4, 5, 6, 7}, nvml.ERROR_GPU_IS_LOST
	require.Equal(t, []string{"GPU 3 of nvidia-smi is unknown: nvmlDeviceGetHandleByIndex: ERROR_GPU_IS_LOST"},
		warnings(b.Sources()))
	s := topologytest.DGXH200().Sources()
	s.OpenManagement = func() (cuda.Management, error) { return nil, errors.New("no NVML: nvmlInit: Unknown Error") }
	require.Contains(t, warnings(s), "no NVML: nvmlInit: Unknown Error")
}
