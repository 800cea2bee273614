package launch

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Machine is a line of a hostfile.
type Machine struct {
	Name  string // as the remote shell takes it: host or user@host
	Slots int    // ranks that run there at most
	Line  int    // where it is named first
}

// Host returns the name without the user.
func (m Machine) Host() string { return m.Name[strings.LastIndexByte(m.Name, '@')+1:] }

// ReadHostfile reads the machines of a job, a line for each as mpirun and deepspeed take them: "node1 slots=8", where
// slots may be missing (1). A # begins a comment. A machine that is named again has the slots of both lines.
func ReadHostfile(path string) ([]Machine, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "hostfile: %w", err)
	}
	defer file.Close()
	var machines []Machine
	at := map[string]int{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		m := Machine{Name: words[0], Slots: 1, Line: number}
		if strings.HasPrefix(m.Name, "-") || strings.ContainsAny(m.Name, "=/") || m.Host() == "" {
			return nil, plugin.Errorf(plugin.InvalidArgument, "hostfile %s, line %d: %q is no name of a host", path, number, m.Name)
		}
		if host, slots, form := strings.Cut(m.Name, ":"); form && isNumber(slots) { // no address of IPv6, which has more colons
			return nil, plugin.Errorf(plugin.InvalidArgument, "hostfile %s, line %d: %q is no name of a host; want %s slots=%s",
				path, number, m.Name, host, slots)
		}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			slots, err := strconv.Atoi(value)
			if (name != "slots" && name != "max_slots") || err != nil || slots < 1 || slots > plugin.MaxWorld {
				return nil, plugin.Errorf(plugin.InvalidArgument,
					"hostfile %s, line %d: %q is unknown; want slots=N, from 1 to %d", path, number, word, plugin.MaxWorld)
			}
			if name == "slots" {
				m.Slots = slots
			}
		}
		if i, known := at[m.Name]; known {
			machines[i].Slots += m.Slots
			continue
		}
		at[m.Name] = len(machines)
		machines = append(machines, m)
	}
	if err := lines.Err(); err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "hostfile %s: %w", path, err)
	}
	if len(machines) == 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "hostfile %s names no host", path)
	}
	return machines, nil
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// Fill returns the machines of the first world slots, with the ranks that run on each; all slots for 0.
func Fill(machines []Machine, world int) ([]Machine, error) {
	slots := 0
	for _, m := range machines {
		slots += m.Slots
	}
	if world == 0 {
		world = slots
	}
	if world > slots || world > plugin.MaxWorld {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%d ranks; the hostfile has %d slots, and a job at most %d ranks",
			world, slots, plugin.MaxWorld)
	}
	var used []Machine
	for _, m := range machines {
		m.Slots = min(m.Slots, world)
		if world -= m.Slots; m.Slots > 0 {
			used = append(used, m)
		}
	}
	return used, nil
}
