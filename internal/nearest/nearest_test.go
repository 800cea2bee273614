package nearest

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"kitten", "sitting", 3}, {"ab", "ba", 1}, {"all_redcue", "all_reduce", 1},
		{"SHUNT_RNAK", "SHUNT_RANK", 1}, {"abcd", "badc", 2},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestOf(t *testing.T) {
	known := []string{"all_reduce", "all_gather", "reduce", "barrier"}
	for name, want := range map[string]string{
		"allreduce": "all_reduce", "all_gathr": "all_gather", "redcue": "reduce",
		"xyzzy": "", "": "", "barrier": "barrier",
	} {
		if got := Of(name, known); got != want {
			t.Errorf("Of(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("kitten", "sitting")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 64 || len(b) > 64 {
			return
		}
		d := Distance(a, b)
		if d != Distance(b, a) || d > max(len(a), len(b)) || (d == 0) != (a == b) {
			t.Fatalf("Distance(%q, %q) = %d", a, b, d)
		}
	})
}
