package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "../../.."

// Every test that the list names must exist.
func TestListedTestsExist(t *testing.T) {
	for number, rule := range List {
		if rule.Number != number+1 {
			t.Errorf("rule %d stands at place %d", rule.Number, number+1)
		}
		for _, test := range rule.Tests {
			found := false
			files, err := filepath.Glob(filepath.Join(module, test.Package, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || regexp.MustCompile(`(?m)^func `+test.Name+`\(`).Match(text)
			}
			if !found {
				t.Errorf("rule %d: no %s in %s", rule.Number, test.Name, test.Package)
			}
		}
	}
}

// Every mutation must still apply, exactly once, and be guarded by a test of
// the rule's own.
func TestMutationsApply(t *testing.T) {
	have := map[int]bool{}
	for _, m := range Mutations {
		have[m.Rule] = true
		text, err := os.ReadFile(filepath.Join(module, m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), m.Old); n != 1 {
			t.Errorf("rule %d: %q occurs %d times in %s", m.Rule, m.Old, n, m.File)
		}
		guarded := false
		for _, test := range List[m.Rule-1].Tests {
			guarded = guarded || test == m.Guard
		}
		if !guarded {
			t.Errorf("rule %d: %s is not among the rule's tests", m.Rule, m.Guard.Name)
		}
	}
	for _, number := range []int{1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 16, 17, 18} {
		if !have[number] {
			t.Errorf("nothing breaks rule %d", number)
		}
	}
}
