package ctransport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// around declares the functions that the guide's native step in C leaves to the engine.
const around = `#include <errno.h>
#include <shunt_transport.h>
#include <stdio.h>
#include <string.h>
struct link { int32_t peer; };
enum { IN_PROGRESS, LOST, ENDED };
void *begin_send(struct link *l, const char *from, int64_t bytes);
void cancel(void *request);
int progress(void *request);
shunt_native made(struct link *l);
STEP
shunt_native made(struct link *l) { return (shunt_native){.context = l, .start = start, .poll = poll}; }
`

// The guide's native step in C is a step by the header's types.
func TestTheGuidesStepInC(t *testing.T) {
	page, err := os.ReadFile("../../docs/transport-author.md")
	require.NoError(t, err)
	_, step, found := strings.Cut(string(page), "```c\n")
	require.True(t, found)
	step, _, _ = strings.Cut(step, "```")
	source := filepath.Join(t.TempDir(), "step.c")
	require.NoError(t, os.WriteFile(source, []byte(strings.Replace(around, "STEP", step, 1)), 0o600))
	args := append([]string{"-std=c99", "-O2", "-c", "-o", source + ".o", source}, strict...)
	output, err := builttest.Command(compiler(t, "cc"), append(args, "-Wno-unused-parameter")...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}
