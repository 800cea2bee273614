package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

var (
	testPoint = New("failpoint.test", "asked by the tests of the package")
	testData  = NewData("failpoint.data", "hands bytes to the tests of the package")
)

// TestMain is also the child of TestEnvironment: it hits the point a few times
// and says how far it came.
func TestMain(m *testing.M) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		for i := range 3 {
			if err := testPoint.Hit(); err != nil {
				_, _ = os.Stdout.WriteString(err.Error() + "\n")
				os.Exit(9)
			}
			_, _ = os.Stdout.WriteString("hit " + string(rune('1'+i)) + "\n")
		}
		for _, p := range Problems() {
			_, _ = os.Stdout.WriteString(p.Error() + "\n")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func arm(t *testing.T, spec string) {
	t.Helper()
	restore, err := Arm(spec)
	require.NoError(t, err)
	t.Cleanup(restore)
}

func TestOffDoesNothing(t *testing.T) {
	require.NoError(t, testPoint.Hit())
	data := []byte{1, 2, 3}
	require.False(t, testData.Corrupt(data))
	require.Equal(t, []byte{1, 2, 3}, data)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = testPoint.Hit() }))
}

func TestError(t *testing.T) {
	arm(t, "failpoint.test=error(timeout)@2")
	require.NoError(t, testPoint.Hit())
	err := testPoint.Hit()
	require.ErrorIs(t, err, plugin.Timeout)
	require.EqualError(t, err, "failpoint failpoint.test: injected error at hit 2")
	require.NoError(t, testPoint.Hit(), "only the second hit acts")
}

func TestOnwards(t *testing.T) {
	arm(t, "failpoint.test=error@2+")
	require.NoError(t, testPoint.Hit())
	for range 3 {
		require.ErrorIs(t, testPoint.Hit(), plugin.Internal)
	}
}

func TestPanicAndDelay(t *testing.T) {
	arm(t, "failpoint.test=panic")
	require.PanicsWithValue(t, "failpoint failpoint.test: injected panic at hit 1", func() { _ = testPoint.Hit() })
	arm(t, "failpoint.test=delay(20ms)")
	began := time.Now()
	require.NoError(t, testPoint.Hit())
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
}

func TestCorrupt(t *testing.T) {
	arm(t, "failpoint.data=corrupt(2)")
	data := make([]byte, 8)
	require.True(t, testData.Corrupt(data))
	changed := 0
	for _, b := range data {
		if b != 0 {
			changed++
		}
	}
	require.Equal(t, 2, changed)
	one := make([]byte, 1)
	require.True(t, testData.Corrupt(one))
	require.NotZero(t, one[0])
	require.False(t, testData.Corrupt(nil), "nothing to corrupt")
}

func TestArmRestoresAndRefuses(t *testing.T) {
	restore, err := Arm("failpoint.test=error; failpoint.data=corrupt")
	require.NoError(t, err)
	require.Error(t, testPoint.Hit())
	points := Points()
	require.Equal(t, "failpoint.data", points[0].Name)
	require.Equal(t, "failpoint.data=corrupt(1)", points[0].Armed)
	require.Equal(t, int64(1), points[1].Hits)
	restore()
	require.NoError(t, testPoint.Hit())
	for spec, want := range map[string]string{
		"failpoint.tset=error":   `failpoint "failpoint.tset" does not exist in this program; did you mean failpoint.test?`,
		"nowhere=error":          "does not exist",
		"failpoint.test=corrupt": "has no data to corrupt",
		"failpoint.data=error":   "takes no error",
	} {
		_, err := Arm(spec + ";failpoint.test=panic")
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, want)
		require.NoError(t, testPoint.Hit(), "a refused text arms nothing")
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a":                                     "no = between",
		"ok=panic;A=panic":                      `clause "A=panic" at byte 9: name "A" is not made of`,
		"=panic":                                "is not made of",
		"a=pnaic":                               "did you mean panic?",
		"a=zzzzzzzzzz":                          "there are error, panic",
		"a=error(timout)":                       "did you mean timeout?",
		"a=error(ok)":                           "unknown error code",
		"a=error(timeout":                       "no closing parenthesis",
		"a=delay":                               "needs a time",
		"a=delay(2h)":                           "needs a time",
		"a=panic(x)":                            "takes no argument",
		"a=panic@0":                             "not the number of a hit",
		"a=panic@x":                             "not the number of a hit",
		"a=exit(256)":                           "not a number up to 255",
		"a=corrupt(0)":                          "not a number",
		"a[x]=panic":                            "not a number from 0 to 1023",
		"a[1024]=panic":                         "not a number from 0 to 1023",
		"a[1=panic":                             "not a number from 0 to 1023",
		strings.Repeat("x", 1<<17):              "at most",
		strings.Repeat("a=stop;", maxClauses+1): "more than 256 clauses",
	} {
		_, err := parse(text)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%.40q", text)
		require.ErrorContains(t, err, want)
	}
}

// TestEnvironment runs this binary with SHUNT_FAILPOINTS set.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name, spec, output string
		status             int
		signal             syscall.Signal
	}{
		{name: "off", output: "hit 1\nhit 2\nhit 3\n"},
		{name: "error", spec: "failpoint.test=error@2", output: "hit 1\nfailpoint failpoint.test: injected error at hit 2\n",
			status: 9},
		{name: "kill", spec: "failpoint.test=exit@3", output: "hit 1\nhit 2\n", signal: syscall.SIGKILL},
		{name: "exit", spec: "failpoint.test=exit(4)", status: 4},
		{name: "this rank", spec: "failpoint.test[1]=exit(4)@2", output: "hit 1\n", status: 4},
		{name: "another rank", spec: "failpoint.test[2]=exit(4)", output: "hit 1\nhit 2\nhit 3\n"},
		{name: "malformed", spec: "what", output: "hit 1\nhit 2\nhit 3\nSHUNT_FAILPOINTS: clause \"what\" at byte 0: no = between the name and the action\n"},
		{name: "unknown", spec: "nowhere=stop", output: "hit 1\nhit 2\nhit 3\nfailpoint \"nowhere\" does not exist in this program\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "FAILPOINT_CHILD=1", "SHUNT_RANK=1", Variable+"="+c.spec)
			output, err := cmd.Output()
			require.Equal(t, c.output, string(output))
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status := exit.Sys().(syscall.WaitStatus)
				if c.signal != 0 {
					require.True(t, status.Signaled())
					require.Equal(t, c.signal, status.Signal())
					return
				}
				require.Equal(t, c.status, status.ExitStatus())
				return
			}
			require.NoError(t, err)
			require.Zero(t, c.status)
			require.Zero(t, c.signal)
		})
	}
}

// TestStop stops a child and lets it go on.
func TestStop(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FAILPOINT_CHILD=1", Variable+"=failpoint.test=stop@1")
	require.NoError(t, cmd.Start())
	var status syscall.WaitStatus
	_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Wait())
}

func FuzzParse(f *testing.F) {
	f.Add("a.b[3]=error(timeout)@2+;c=exit;d=delay(1s);e=corrupt(4)@1")
	f.Add("a=stop@9223372036854775807")
	f.Add("a=@" + strings.Repeat("\xc2", 2000))
	f.Add("a[" + strings.Repeat("\xc2", 2000) + "]=stop")
	f.Fuzz(func(t *testing.T, text string) {
		clauses, err := parse(text)
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Fatalf("unbounded message of %d bytes", len(err.Error()))
			}
			return
		}
		for _, c := range clauses {
			again, err := parse(c.String())
			if err != nil || len(again) != 1 || again[0] != c {
				t.Fatalf("%q: %+v became %q, then %+v (%v)", text, c, c.String(), again, err)
			}
		}
	})
}

func BenchmarkHitOff(b *testing.B) {
	for range b.N {
		_ = testPoint.Hit()
	}
}
