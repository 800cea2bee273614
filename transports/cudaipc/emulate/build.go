package emulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Small values of the kernels' constants, so that short messages have many rounds
// and a job has few threads.
var constants = map[string]int{
	"SHUNT_MAX_BLOCKS":     5,
	"SHUNT_MAX_THREADS":    128,
	"SHUNT_MAX_EXPORTS":    16,
	"SHUNT_CHUNK_BYTES":    2048,
	"SHUNT_CHANNEL_BLOCKS": 2,
	"kCopyBlocks":          1,
	"kLong":                4096,
	"kTurnVectors":         2,
}

// Build says what to compile.
type Build struct {
	Kernels   string              // the folder of the sources
	Machine   string              // the folder of the machine's sources
	Types     map[string][]string // dtypes, by the name of a source that reduces, without .cu; "" for those not named
	Only      []string            // sources, without .cu; none: all
	Edit      func(name, text string) string
	Constants map[string]int // more of them
	Objects   []string       // the machine's objects, if Harness has made them
}

var (
	typedKernel = regexp.MustCompile(`(?m)^SHUNT_KERNEL_TYPED\((\w+),`)
	bytesKernel = regexp.MustCompile(`(?m)^SHUNT_KERNEL_BYTES\((\w+),`)
	plainKernel = regexp.MustCompile(`(?m)^extern "C" __global__ .*?\) (\w+)\(`)
)

// Compile leaves the program in out and answers its path and the kernels that it
// has.
func (b Build) Compile(ctx context.Context, out string) (program string, kernels []string, err error) {
	files, err := os.ReadDir(b.Kernels)
	if err != nil {
		return "", nil, err
	}
	all := b.constants()
	flags := append(b.flags(out), "-O1", "-Wno-unknown-pragmas", "-Wno-maybe-uninitialized", "-Wno-uninitialized", "-Wno-unused", "-Wno-array-bounds", "-Werror=unused-result",
		"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-include", filepath.Join(b.Machine, "cuda.h"), "-x", "c++")
	var units []unit
	for _, f := range files {
		ext := filepath.Ext(f.Name())
		if ext != ".cu" && ext != ".cuh" && ext != ".h" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.Kernels, f.Name()))
		if err != nil {
			return "", nil, err
		}
		source := string(data)
		if b.Edit != nil {
			source = b.Edit(f.Name(), source)
		}
		text, err := Translate(source, all)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := os.WriteFile(filepath.Join(out, f.Name()), []byte(text), 0o644); err != nil {
			return "", nil, err
		}
		name := strings.TrimSuffix(f.Name(), ext)
		if ext != ".cu" || (len(b.Only) > 0 && !slices.Contains(b.Only, name)) {
			continue
		}
		// The names of kernels come from the source, so that one that is not run
		// is noticed.
		add := func(suffix string, names ...*regexp.Regexp) {
			for _, pattern := range names {
				for _, m := range pattern.FindAllStringSubmatch(source, -1) {
					kernels = append(kernels, m[1]+suffix)
				}
			}
		}
		if !typedKernel.MatchString(source) {
			add("", bytesKernel, plainKernel)
			units = append(units, unit{filepath.Join(out, f.Name()), filepath.Join(out, name+".o"), flags})
			continue
		}
		types, ok := b.Types[name]
		if !ok {
			types = b.Types[""]
		}
		for _, dtype := range types {
			add("_"+dtype, typedKernel)
			units = append(units, unit{filepath.Join(out, f.Name()), filepath.Join(out, name+"_"+dtype+".o"), append(slices.Clone(flags), "-DSHUNT_DTYPE="+dtype)})
		}
	}
	objects, err := compileAll(ctx, units)
	if err != nil {
		return "", nil, err
	}
	machine := b.Objects
	if machine == nil {
		if machine, err = b.Harness(ctx, out); err != nil {
			return "", nil, err
		}
	}
	program = filepath.Join(out, "check")
	return program, kernels, compiler(ctx, slices.Concat([]string{"-rdynamic", "-o", program}, objects, machine, []string{"-ldl"})...)
}

// Harness compiles the machine and the check into out, for several programs of the
// same constants.
func (b Build) Harness(ctx context.Context, out string) (objects []string, err error) {
	text, err := os.ReadFile(filepath.Join(b.Kernels, "layout.h"))
	if err != nil {
		return nil, err
	}
	layout, err := Translate(string(text), b.constants())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(out, "layout.h"), []byte(layout), 0o644); err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range []string{"machine", "threads", "memory", "fiber", "values", "check"} {
		units = append(units, unit{filepath.Join(b.Machine, name+".cc"), filepath.Join(out, "harness_"+name+".o"), append(b.flags(out), "-O2")})
	}
	return compileAll(ctx, units)
}

func (b Build) constants() map[string]int {
	all := maps.Clone(constants)
	maps.Copy(all, b.Constants)
	return all
}

func (b Build) flags(out string) []string {
	all := b.constants()
	return []string{
		"-std=c++17", "-g0", "-fno-strict-aliasing", "-ffp-contract=off", "-Wall",
		"-I", out, "-I", filepath.Join(b.Machine, "include"), "-I", b.Machine,
		fmt.Sprintf("-DEMULATED_COPY_BLOCKS=%d", all["kCopyBlocks"]), fmt.Sprintf("-DEMULATED_LONG=%d", all["kLong"]),
	}
}

type unit struct {
	source, object string
	flags          []string
}

// compileAll answers the objects, in order.
func compileAll(ctx context.Context, units []unit) (objects []string, err error) {
	failures := make([]error, len(units))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i, u := range units {
		objects = append(objects, u.object)
		group.Go(func() {
			free <- struct{}{}
			failures[i] = compiler(ctx, append(slices.Clone(u.flags), "-c", u.source, "-o", u.object)...)
			<-free
		})
	}
	group.Wait()
	return objects, errors.Join(failures...)
}

func compiler(ctx context.Context, arguments ...string) error {
	var output bytes.Buffer
	c := exec.CommandContext(ctx, "g++", arguments...)
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		return errors.Join(err, fmt.Errorf("g++ %s:\n%.4000s", strings.Join(arguments, " "), output.String()))
	}
	return nil
}
