package emulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Small values of the kernels' constants, so that short messages have many rounds
// and a job has few threads.
var constants = map[string]int{
	"SHUNT_MAX_BLOCKS":     5,
	"kLook":                64,
	"kWatch":               50000,
	"kPatience":            1 << 30, // stores may be held back for ever so long
	"SHUNT_MAX_THREADS":    128,
	"SHUNT_MAX_EXPORTS":    16,
	"SHUNT_CHUNK_BYTES":    2048,
	"SHUNT_CHANNEL_BLOCKS": 2,
	"kOffered":             4096,
	"kLongOfTwo":           6144,
	"kFewBlocks":           1,
	"kTurnVectors":         2,
}

// Build says what to compile.
type Build struct {
	Kernels   string              // the folder of the sources
	Machine   string              // the folder of the machine's sources
	Types     map[string][]string // dtypes, by the name of a source that reduces, without .cu; "" for those not named
	Only      []string            // kernels, without the suffix of a dtype; none: all
	Edit      func(name, text string) string
	Constants map[string]int // more of them
	Once      bool           // what is compiled runs a few times only
	Harness   *Harness       // what CompileHarness has made, if it has
}

// Harness is the part that programs of the same constants share, whatever their kernels.
type Harness struct {
	header  string   // machine/cuda.h, compiled beforehand
	objects []string // of the machine and the check
}

// kernel finds the definition of a kernel in a source: of one that is compiled for each
// dtype, or for those of most traffic, one that is not, or one without a macro.
var kernel = regexp.MustCompile(`(?m)^(?:SHUNT_KERNEL_(TYPED|HOT|BYTES)(?:_V|_OF)?\((\w+),.*|extern "C" __global__ (.*?\) (\w+)\())`)

// hotTypes are those dtypes.
var hotTypes = []string{"float16", "float32", "bfloat16"}

// only leaves those of a source's kernels that are wanted, and returns their names, and which of them are compiled for
// some dtypes alone.
func (b Build) only(source string) (text string, names, hot []string, typed bool) {
	text = kernel.ReplaceAllStringFunc(source, func(definition string) string {
		m := kernel.FindStringSubmatch(definition)
		name := m[2] + m[4]
		switch {
		case len(b.Only) == 0 || slices.Contains(b.Only, name):
			names = append(names, name)
			typed = typed || m[1] == "TYPED" || m[1] == "HOT"
			if m[1] == "HOT" {
				hot = append(hot, name)
			}
			return definition
		case m[4] != "":
			return "static " + m[3] // it is not called
		}
		return ""
	})
	return text, names, hot, typed
}

// Compile leaves the program in out and returns its path and the kernels that it
// has.
func (b Build) Compile(ctx context.Context, out string) (program string, kernels []string, err error) {
	files, err := os.ReadDir(b.Kernels)
	if err != nil {
		return "", nil, err
	}
	harness := b.Harness
	if harness == nil {
		if harness, err = b.CompileHarness(ctx, out); err != nil {
			return "", nil, err
		}
	}
	all := b.constants()
	flags := append(b.kernelFlags(out), "-include", harness.header, "-x", "c++")
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
		// The names of kernels come from the source, so that one that is not run
		// is noticed.
		source, names, hot, typed := b.only(source)
		text, err := Translate(source, all)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := os.WriteFile(filepath.Join(out, f.Name()), []byte(text), 0o644); err != nil {
			return "", nil, err
		}
		if len(names) == 0 {
			continue
		}
		object := filepath.Join(out, strings.TrimSuffix(f.Name(), ext))
		if !typed {
			kernels = append(kernels, names...)
			units = append(units, unit{filepath.Join(out, f.Name()), object + ".o", flags})
			continue
		}
		types, ok := b.Types[strings.TrimSuffix(f.Name(), ext)]
		if !ok {
			types = b.Types[""]
		}
		for _, dtype := range types {
			for _, name := range names {
				if !slices.Contains(hot, name) || slices.Contains(hotTypes, dtype) {
					kernels = append(kernels, name+"_"+dtype)
				}
			}
			units = append(units, unit{filepath.Join(out, f.Name()), object + "_" + dtype + ".o",
				append(slices.Clone(flags), "-DSHUNT_DTYPE="+dtype)})
		}
	}
	objects, err := compileAll(ctx, units)
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(out, "check")
	return program, kernels, compiler(ctx, slices.Concat(linker(), []string{"-rdynamic", "-o", program}, objects,
		harness.objects, []string{"-ldl"})...)
}

// linker returns the flags for a linker that takes a third of the time, where it is.
func linker() []string {
	if err := tool(context.Background(), "ld.gold", "--version").Run(); err != nil {
		return nil
	}
	return []string{"-fuse-ld=gold"}
}

// CompileHarness leaves in out what several programs of the same constants need.
func (b Build) CompileHarness(ctx context.Context, out string) (*Harness, error) {
	// The compiler reads them, and Go, which keeps results of tests, has to see that it does.
	if err := fs.WalkDir(os.DirFS(b.Machine), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			_, err = os.Stat(filepath.Join(b.Machine, path))
		}
		return err
	}); err != nil {
		return nil, err
	}
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
	header := filepath.Join(out, "cuda.h")
	if text, err = os.ReadFile(filepath.Join(b.Machine, "cuda.h")); err == nil {
		err = os.WriteFile(header, text, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(header+".gch", 0o755); err != nil { // of those in it the compiler takes the one of its flags
		return nil, err
	}
	var units []unit
	for _, b.Once = range []bool{false, true} {
		units = append(units, unit{header, filepath.Join(header+".gch", strconv.FormatBool(b.Once)),
			append(b.kernelFlags(out), "-x", "c++-header")})
	}
	for _, name := range []string{"check", "memory", "machine", "threads", "values", "fiber"} { // the longest first
		units = append(units, unit{filepath.Join(b.Machine, name+".cc"), filepath.Join(out, "harness_"+name+".o"),
			append(b.flags(out), "-O2")})
	}
	objects, err := compileAll(ctx, units)
	if err != nil {
		return nil, err
	}
	return &Harness{header, objects[2:]}, nil
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
		fmt.Sprintf("-DEMULATED_LONG=%d", all["kOffered"]),
		fmt.Sprintf("-DEMULATED_LONG_OF_TWO=%d", all["kLongOfTwo"]),
		fmt.Sprintf("-DEMULATED_WATCH=%d", all["kWatch"]),
	}
}

// kernelFlags optimizes what runs often, but merges no stores: the machine sees those of the source.
func (b Build) kernelFlags(out string) []string {
	optimize := "-O1"
	if b.Once {
		optimize = "-O0"
	}
	return append(b.flags(out), optimize, "-fno-store-merging", "-Wno-unknown-pragmas",
		"-Wno-maybe-uninitialized", "-Wno-uninitialized", "-Wno-unused",
		"-Wno-array-bounds", "-Werror=unused-result",
		"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0")
}

type unit struct {
	source, object string
	flags          []string
}

// compileAll returns the objects, in order.
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

// tool leaves the search to env: were PATH read here, Go would keep no result of these tests, which take many minutes,
// for a shell of another PATH.
func tool(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "/usr/bin/env", append([]string{name}, arguments...)...)
}

func compiler(ctx context.Context, arguments ...string) error {
	var output bytes.Buffer
	c := tool(ctx, "g++", arguments...)
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		return errors.Join(err, fmt.Errorf("g++ %s:\n%.4000s", strings.Join(arguments, " "), output.String()))
	}
	return nil
}
