package ucx

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
)

// slow is a library that notes which devices it is told to use, and whose ucp_init installs a handler, notes that it
// has begun and ends when a file is there.
const slow = `
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
static char x[8];
static int events;
void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 13; *c = 0; }
signed char ucp_config_read(const char *a, const char *b, void **c) { *c = x; return 0; }
signed char ucp_config_modify(void *c, const char *name, const char *value) {
  if (strcmp(name, "NET_DEVICES")) return 0;
  int fd = open(DEVICES, O_CREAT | O_RDWR, 0600);
  if (write(fd, value, strlen(value)) < 0) return -1;
  return close(fd);
}
signed char ucp_init_version(unsigned a, unsigned b, const void *p, void *c, void **out) {
  signal(SIGTTIN, (void (*)(int))ucp_get_version);
  close(open(BEGUN, O_CREAT | O_RDWR, 0600));
  while (access(END, F_OK)) usleep(1000);
  *out = x;
  return RESULT;
}
signed char ucp_worker_create(void *c, const void *p, void **out) { *out = x; return 0; }
signed char ucp_worker_get_efd(void *w, int *fd) { *fd = events = eventfd(0, 0); return 0; }
void ucp_worker_destroy(void *w) { close(events); }
signed char ucp_worker_get_address(void *w, void **a, size_t *n) { *a = x; *n = sizeof x; return 0; }
const char *ucs_status_string(signed char s) { return "no device"; }
`

// loadSlow makes slow the library that is found. at names its files: begun, and end, which ends ucp_init.
func loadSlow(t *testing.T, result int) (at func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	at = func(name string) string { return filepath.Join(dir, name) }
	source := slow
	for _, name := range symbols() {
		switch name {
		case "ucp_get_version", "ucp_config_read", "ucp_config_modify", "ucp_init_version", "ucp_worker_create",
			"ucp_worker_get_efd", "ucp_worker_destroy", "ucp_worker_get_address", "ucs_status_string":
		default:
			source += "int " + name + "(void) { return 0; }\n"
		}
	}
	require.NoError(t, os.WriteFile(at("slow.c"), []byte(source), 0o600))
	out, err := builttest.Command("cc", "-shared", "-fPIC", "-o", at("libucp.so"), fmt.Sprintf("-DBEGUN=%q", at("begun")),
		fmt.Sprintf("-DEND=%q", at("end")), fmt.Sprintf("-DDEVICES=%q", at("devices")),
		fmt.Sprint("-DRESULT=", result), at("slow.c")).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv(Variable, at("libucp.so"))
	return at
}

// Abort returns at once also while UCX makes the worker, which is not used then.
func TestAbortWhileTheWorkerIsMade(t *testing.T) {
	for result, want := range map[int]error{0: plugin.Aborted, -3: plugin.System} {
		at := loadSlow(t, result)
		e, err := Transport{}.Open(t.Context(), plugin.OpenConfig{World: 2})
		require.NoError(t, err)

		published, aborted := make(chan error, 1), make(chan struct{})
		x := plugin.Exchange{Request: plugin.Request{Collective: plugin.Barrier, World: 2}, Algorithm: direct}
		go func() {
			_, err := e.(plugin.Exchanger).Publish(t.Context(), x)
			published <- err
		}()
		for _, err := os.Stat(at("begun")); err != nil; _, err = os.Stat(at("begun")) {
			time.Sleep(time.Millisecond)
		}
		go func() {
			e.(plugin.Aborter).Abort("enough")
			close(aborted)
		}()
		select {
		case <-aborted:
		case <-time.After(5 * time.Second):
			t.Error("Abort waits for UCX")
		}
		require.NoError(t, os.WriteFile(at("end"), nil, 0o600))
		assert.ErrorIs(t, <-published, want)
		<-aborted
		_, err = e.(plugin.Exchanger).Publish(t.Context(), x)
		assert.ErrorIs(t, err, plugin.Aborted)
		assert.NoError(t, e.Close())
	}
}

// What the program does to its signals while UCX starts stays; what UCX does to them does not.
func TestSignalsThatChangeWhileUCXStarts(t *testing.T) {
	at := loadSlow(t, -3)
	ignored := func(s syscall.Signal) bool {
		text, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		_, line, _ := strings.Cut(string(text), "SigIgn:\t")
		line, _, _ = strings.Cut(line, "\n")
		set, err := strconv.ParseUint(line, 16, 64)
		require.NoError(t, err)
		return set>>(s-1)&1 == 1
	}
	signal.Ignore(syscall.SIGTTIN)
	defer signal.Reset(syscall.SIGTTIN, syscall.SIGUSR2)
	e, err := Transport{}.Open(t.Context(), plugin.OpenConfig{World: 2})
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() {
		_, err := e.(plugin.Exchanger).Publish(t.Context(), plugin.Exchange{Algorithm: direct})
		published <- err
	}()
	for _, err := os.Stat(at("begun")); err != nil; _, err = os.Stat(at("begun")) {
		time.Sleep(time.Millisecond)
	}
	assert.False(t, ignored(syscall.SIGTTIN), "the library has installed no handler")
	signal.Ignore(syscall.SIGUSR2)
	require.NoError(t, os.WriteFile(at("end"), nil, 0o600))
	assert.ErrorIs(t, <-published, plugin.System)
	assert.True(t, ignored(syscall.SIGTTIN), "the library's handler stays")
	assert.True(t, ignored(syscall.SIGUSR2), "the program's change is lost")
	assert.NoError(t, e.Close())
}
