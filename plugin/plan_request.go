package plugin

// ValidateFor is like Validate, for the plan of a request: it also rejects a plan for
// another request, rank or world, and one that reaches further than the request allows.
func (p *Plan) ValidateFor(r Request) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Collective != r.Collective || p.World != r.World || p.Rank != r.Rank ||
		(p.Collective.Reduces() && (p.DType != r.DType || p.Op != r.Op)) {
		return Errorf(Protocol, "plan %s is for %s (dtype %s, op %s, rank %d of %d), want %s (dtype %s, op %s, rank %d of %d)",
			p.Algorithm, p.Collective, p.DType, p.Op, p.Rank, p.World, r.Collective, r.DType, r.Op, r.Rank, r.World)
	}
	if r.Symmetric {
		return nil
	}
	for _, track := range p.Tracks { // what is in none has not been checked, and does not run
		for i := range p.Steps[track.First : int(track.First)+int(track.Count)] {
			i += int(track.First)
			if s := &p.Steps[i]; p.reachesPeerRecv(s) {
				return Errorf(Protocol, "plan %s: step %d (%s) reaches receive memory of a peer, but the request is not symmetric",
					p.Algorithm, i, s.Kind)
			}
		}
	}
	return nil
}

// reachesPeerRecv reports whether a step of a valid plan names a ref into space
// peer_recv.
func (p *Plan) reachesPeerRecv(s *Step) bool {
	is := func(ref uint16) bool { return p.Refs[ref].Space == SpacePeerRecv }
	switch s.Kind {
	case StepCopy:
		return is(s.Dst) || is(s.A)
	case StepLaunch:
		k := &p.Kernels[s.A]
		for _, a := range p.Args[k.FirstArg : int(k.FirstArg)+int(k.CountArgs)] {
			if a.Ref != None && is(a.Ref) {
				return true
			}
		}
	}
	return false
}
