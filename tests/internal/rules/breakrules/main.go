// Breakrules breaks each rule of correctness on purpose, in a copy of the
// tree, and shows that the test which guards the rule fails.
//
//	go run ./tests/internal/rules/breakrules [-rule N]
//
// It exits with status 1 when a guard fails without the break, passes with it,
// or when a break does not apply.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/tests/internal/rules"
)

func main() {
	only := flag.Int("rule", 0, "break this rule only; 0: all")
	verbose := flag.Bool("v", false, "show what the guards print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *only, *verbose, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "breakrules:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, only int, verbose bool, w io.Writer) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "shunt-rules-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyTree(ctx, dir); err != nil {
		return false, err
	}
	ok = true
	checked := map[rules.Test]bool{}
	for _, m := range rules.Mutations {
		if only != 0 && m.Rule != only {
			continue
		}
		if !checked[m.Guard] {
			checked[m.Guard] = true
			if out, passed, err := guard(ctx, dir, m.Guard); err != nil {
				return false, err
			} else if !passed {
				ok = false
				fmt.Fprintf(w, "rule %2d  FAILS UNBROKEN  %s\n%s", m.Rule, m.Guard.Name, out)
				continue
			}
		}
		start := time.Now()
		out, passed, err := broken(ctx, dir, m)
		if err != nil {
			return false, err
		}
		verdict := "noticed"
		if passed {
			verdict, ok = "UNNOTICED", false
		}
		fmt.Fprintf(w, "rule %2d  %-9s  %s: %s (%s, %.1f s)\n", m.Rule, verdict, m.Guard.Name, m.Why, m.File,
			time.Since(start).Seconds())
		if verbose || passed {
			fmt.Fprintf(w, "%s\n", out)
		}
	}
	return ok, nil
}

// broken makes one edit, runs the guard, and takes the edit back.
func broken(ctx context.Context, dir string, m rules.Mutation) (out string, passed bool, err error) {
	path := filepath.Join(dir, m.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false, err
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return "", false, fmt.Errorf("rule %d: the edit applies %d times to %s", m.Rule, n, m.File)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.Old, m.New, 1)), 0o600); err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, text, 0o600)) }()
	// A break that does not compile proves nothing. The emulator says so itself of a kernel.
	if filepath.Ext(m.File) == ".go" {
		build := exec.CommandContext(ctx, "go", "vet", "./"+filepath.Dir(m.File))
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return "", false, fmt.Errorf("rule %d: the edit of %s does not compile: %w\n%s", m.Rule, m.File, err, out)
		}
	}
	return guard(ctx, dir, m.Guard)
}

// guard runs one test. It errs only when the test cannot be run.
func guard(ctx context.Context, dir string, test rules.Test) (out string, passed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute) // most of it builds
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=4m", "-run", "^"+test.Name+"$", "-v", "./"+
		test.Package)
	command.Dir = dir
	command.WaitDelay = 10 * time.Second
	text, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	if !strings.Contains(string(text), "=== RUN   "+test.Name) {
		return "", false, fmt.Errorf("%s did not run: %w\n%s", test.Name, err, text)
	}
	return string(text), err == nil, nil
}

// copyTree copies the files that version control knows, as they are now.
func copyTree(ctx context.Context, dir string) error {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	root = strings.TrimSpace(root)
	list, err := output(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not yet committed
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func output(ctx context.Context, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}
