package failpoint

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

var place = New("failpoint.test", "hands bytes to the tests of the package")

// In a child TestMain hits the place three times and counts them.
func TestMain(m *testing.M) {
	if os.Getenv("FAILPOINT_CHILD") == "" {
		os.Exit(m.Run())
	}
	for i := range 3 {
		place.Hit()
		_, _ = os.Stdout.WriteString("hit " + string(rune('1'+i)) + "\n")
	}
	if err := Problem(); err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
	}
}

func arm(t *testing.T, text string) {
	t.Helper()
	restore, err := Arm(text)
	require.NoError(t, err)
	t.Cleanup(restore)
}

func TestOffDoesNothing(t *testing.T) {
	data := []byte{1, 2, 3}
	require.False(t, place.Corrupt(data))
	require.Equal(t, []byte{1, 2, 3}, data)
	require.Zero(t, testing.AllocsPerRun(100, place.Hit))
}

func TestCorrupt(t *testing.T) {
	arm(t, "failpoint.test=corrupt(2)@2")
	data, want := make([]byte, 8), []byte{0x55, 0, 0, 0, 0x55, 0, 0, 0}
	require.False(t, place.Corrupt(data), "only the second hit acts")
	require.True(t, place.Corrupt(data))
	require.Equal(t, want, data)
	require.False(t, place.Corrupt(data))
	arm(t, "failpoint.test=corrupt")
	require.True(t, place.Corrupt(data[:1]))
	require.False(t, place.Corrupt(nil), "nothing to corrupt")
}

func TestArmRestores(t *testing.T) {
	restore, err := Arm("failpoint.test=delay(20ms)")
	require.NoError(t, err)
	began := time.Now()
	place.Hit()
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
	require.Equal(t, "failpoint.test=delay(20ms)", place.Armed())
	restore()
	require.Empty(t, place.Armed())
}

func TestArmRejects(t *testing.T) {
	for _, rest := range []string{
		"", "=", "=pnaic", "=exit(4", "=exit(x)", "=exit(4)", "=delay", "=delay(2)", "=corrupt(x)", "=corrupt(-1)", "=exit@0",
		"=exit@x", "=exit@2+", "[x]=exit", "[1=exit", "=" + strings.Repeat("x", 1<<17),
	} {
		_, err := Arm("failpoint.test=exit; failpoint.test" + rest)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%.40q", rest)
		require.ErrorContains(t, err, "must be name[rank]=action@n")
		require.Less(t, len(err.Error()), 400)
		place.Hit() // a text with an error switches nothing on
	}
	_, err := Arm("failpoint.test=exit;=exit")
	require.Error(t, err)
	_, err = Arm("failpoint.test=exit;nowhere=exit")
	require.ErrorContains(t, err, `SHUNT_FAILPOINTS: clause "nowhere=exit" must be name[rank]=action@n, with a name of`)
	place.Hit()
}

func TestEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "hit 1\nhit 2\nhit 3\n",
		"failpoint.test=exit@3":              "hit 1\nhit 2\nsignal: killed",
		"failpoint.test[1]=exit@2":           "hit 1\nsignal: killed",
		"failpoint.test[2]=exit":             "hit 1\nhit 2\nhit 3\n",
		"nowhere=stop; failpoint.test":       "hit 1\nhit 2\nhit 3\nSHUNT_FAILPOINTS: clause \"failpoint.test\" must be ",
		"nowhere=stop":                       "hit 1\nhit 2\nhit 3\nSHUNT_FAILPOINTS: clause \"nowhere=stop\" must be ",
		"failpoint.test=exit@2;nowhere=stop": "hit 1\nsignal: killed",
	} {
		output, err := child(text).Output()
		if err != nil {
			output = append(output, err.Error()...)
		}
		require.Contains(t, string(output), want, text)
	}
}

func child(text string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "FAILPOINT_CHILD=1", "SHUNT_RANK=1", Variable+"="+text)
	return c
}

func TestStop(t *testing.T) {
	c := child("failpoint.test=stop@1")
	require.NoError(t, c.Start())
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	require.NoError(t, c.Wait())
}
