package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

var built = builttest.Library{Build: "./build.sh"}

func TestMain(m *testing.M) { built.Main(m) }

// library returns the directory of libshunt.so.
func library(t testing.TB) string {
	t.Helper()
	dir, err := built.Dir()
	require.NoError(t, err)
	return dir
}

// program compiles a C or C++ program against the library.
func program(t testing.TB, source string, flags ...string) string {
	t.Helper()
	dir := library(t)
	compiler := "cc"
	args := []string{"-std=c99", "-pedantic", "-D_GNU_SOURCE"}
	if strings.HasSuffix(source, ".cc") {
		compiler = "c++"
		args = []string{"-std=c++98", "-Wno-long-long"}
	}
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no compiler: %s is not installed", compiler)
	}
	binary := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), filepath.Ext(source)))
	args = append(args, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-I../plugin", "-o", binary, source,
		"-L"+dir, "-Wl,-rpath,"+dir, "-lshunt", "-lpthread")
	output, err := builttest.Command(compiler, append(args, flags...)...).CombinedOutput()
	require.NoError(t, err, string(output))
	return binary
}

// result is the outcome of one process of a world.
type result struct {
	output, errors string
	err            error
}

// world runs a program as every rank of a world and waits for all.
func world(t testing.TB, size int, binary string, args ...string) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	meeting := "file://" + filepath.Join(t.TempDir(), "meeting")
	results := make([]result, size)
	var group sync.WaitGroup
	for rank := range size {
		group.Go(func() {
			cmd := exec.CommandContext(ctx, binary, args...)
			cmd.Env = append(os.Environ(), "SHUNT_RANK="+strconv.Itoa(rank), "SHUNT_WORLD="+strconv.Itoa(size), "SHUNT_ID="+
				meeting)
			var output, errors bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &errors
			err := cmd.Run()
			results[rank] = result{output.String(), errors.String(), err}
		})
	}
	group.Wait()
	return results
}

// succeed is world where every rank must succeed.
func succeed(t testing.TB, size int, binary string, args ...string) []result {
	t.Helper()
	results := world(t, size, binary, args...)
	for rank, r := range results {
		require.NoError(t, r.err, "rank %d of %d:\n%s%s", rank, size, r.output, r.errors)
	}
	return results
}
