package plugin

import "strings"

// NameLetters are the characters of a transport's name.
const NameLetters = "abcdefghijklmnopqrstuvwxyz0123456789_"

// maxMemoryKinds is the number of memory kinds that a table holds.
const maxMemoryKinds = 16

// Validate checks a transport's description against the contract; every carrier refuses a transport that breaks it.
// Features that this version of the contract does not know are allowed: a later minor version may have added them.
func (i Info) Validate() error {
	if i.Name == "" || len(i.Name) > MaxName {
		return Errorf(Protocol, "transport name has %d bytes, want 1 to %d", len(i.Name), MaxName)
	}
	if strings.Trim(i.Name, NameLetters) != "" {
		return Errorf(Protocol, "transport name %q is not made of a-z, 0-9 and _", i.Name)
	}
	for _, t := range [...]struct{ what, text string }{{"version", i.Version}, {"doc line", i.Doc}} {
		if len(t.text) > MaxText {
			return Errorf(Protocol, "transport %s has a %s of %d bytes, want at most %d", i.Name, t.what, len(t.text), MaxText)
		}
		if !printable(t.text) {
			return Errorf(Protocol, "transport %s has the %s %q, which is not printable UTF-8", i.Name, t.what, t.text)
		}
	}
	if i.MaxWorld < 0 || i.MaxWorld > MaxWorld {
		return Errorf(Protocol, "transport %s serves worlds of up to %d ranks, want 0 to %d", i.Name, i.MaxWorld, MaxWorld)
	}
	if len(i.Memory) == 0 || len(i.Memory) > maxMemoryKinds {
		return Errorf(Protocol, "transport %s names %d memory kinds, want 1 to %d", i.Name, len(i.Memory), maxMemoryKinds)
	}
	for _, m := range i.Memory {
		if m > MemoryKindCuda {
			return Errorf(Protocol, "transport %s names memory kind %d, which is unknown", i.Name, uint32(m))
		}
	}
	return nil
}
