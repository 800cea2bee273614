package selector

import (
	_ "embed"
	"sync"
)

//go:embed builtin.json
var builtinText []byte

// Builtin returns the costs that are built in, by class of topology. The caller must not change them.
var Builtin = sync.OnceValue(func() *Tuning {
	t, err := ParseTuning(builtinText)
	if err != nil {
		panic("selector: builtin.json: " + err.Error()) // a test reads it
	}
	return t
})
