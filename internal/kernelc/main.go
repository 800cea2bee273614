// Kernelc compiles one file of CUDA C with NVRTC and packs the result for all
// architectures into a fatbin, which the driver chooses from:
//
//	kernelc -toolkit folder -arch sm_90,compute_100 [-D name[=value]]... -o x.fatbin x.cu
//
// The toolkit is the folder nvidia of Python's packages, with CUDA 12's; toolkit.sh
// fetches them. sm_NN stands for machine code, compute_NN for PTX. With one
// architecture and a name that ends in .cubin or .ptx, NVRTC's output is written
// unchanged.
//
// NVRTC rather than nvcc, because PyPI has no nvcc of CUDA 12, and the drivers of
// CUDA 12 refuse what CUDA 13 makes (decision 12).
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shunt-ccl/shunt/cuda"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kernelc:", err)
		os.Exit(1)
	}
}

func run() error {
	toolkit := flag.String("toolkit", "", "the folder of the packages")
	out := flag.String("o", "", "the file to write")
	architectures := flag.String("arch", "", "architectures, with commas between them")
	var options []string
	flag.Func("D", "a macro, as of a compiler", func(value string) error {
		options = append(options, "-D"+value)
		return nil
	})
	flag.Parse()
	if flag.NArg() != 1 || *toolkit == "" || *out == "" || *architectures == "" {
		return fmt.Errorf("one source, -toolkit, -arch and -o are needed")
	}
	source, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		return err
	}
	compiler, err := cuda.LoadCompiler(filepath.Join(*toolkit, "cuda_nvrtc/lib/libnvrtc.so.12"))
	if err != nil {
		return err
	}
	// Functions without a place are the device's: lambdas.
	options = append(options, "-std=c++17", "-default-device", "-I"+filepath.Dir(flag.Arg(0)),
		"-I"+filepath.Join(*toolkit, "cuda_runtime/include"), "-I"+filepath.Join(*toolkit, "cuda_cccl/include"))
	var parts []part
	for architecture := range strings.SplitSeq(*architectures, ",") {
		kind, number, _ := strings.Cut(architecture, "_")
		if kind != "sm" && kind != "compute" || number == "" {
			return fmt.Errorf("-arch %s: not sm_NN or compute_NN", architecture)
		}
		p := part{architecture: number, ptx: kind == "compute"}
		// The file's name alone, so that no path enters an image.
		p.code, err = compiler.Compile(filepath.Base(flag.Arg(0)), string(source), p.ptx,
			append(options, "-arch="+architecture)...)
		if err != nil {
			return err
		}
		parts = append(parts, p)
	}
	image := parts[0].code
	if ext := filepath.Ext(*out); len(parts) > 1 || ext != ".cubin" && ext != ".ptx" {
		if image, err = pack(filepath.Join(*toolkit, "nvfatbin/lib/libnvfatbin.so.12"), parts); err != nil {
			return err
		}
	}
	return os.WriteFile(*out, image, 0o644)
}
