package executor

import "github.com/shunt-ccl/shunt/cuda"

// GraphUse is a tie to a graph, for memory that its replays reach.
type GraphUse struct {
	driver cuda.Driver
	gone   bool // under registry.mu
}

// UseGraph ties its caller to a graph, also to one that is being captured.
func UseGraph(driver cuda.Driver, g cuda.Graph) (*GraphUse, error) {
	u := &GraphUse{driver: driver}
	registry.mu.Lock()
	registry.next++
	token := registry.next
	registry.uses[token] = u
	registry.mu.Unlock()
	if err := driver.RetainOnGraph(g, token); err != nil {
		registry.mu.Lock()
		delete(registry.uses, token)
		registry.mu.Unlock()
		return nil, err
	}
	return u, nil
}

// Gone reports whether neither the graph nor an executable made of it is left, and no replay is under way.
func (u *GraphUse) Gone() bool {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if !u.gone {
		takeTokens(u.driver)
	}
	return u.gone
}

// takeTokens learns from a driver which graphs are gone. registry.mu is held.
func takeTokens(driver cuda.Driver) {
	var tokens [64]uint64
	for {
		gone := driver.Released(tokens[:])
		for _, token := range gone {
			if d := registry.owners[token]; d != nil {
				delete(registry.owners, token)
				delete(d.live, token)
			}
			if u := registry.uses[token]; u != nil {
				delete(registry.uses, token)
				u.gone = true
			}
		}
		if len(gone) < len(tokens) {
			return
		}
	}
}
