package call

import "github.com/shunt-ccl/shunt/plugin"

// Signature is the key of cached plans: everything about an operation but its sizes, addresses and root.
type Signature struct {
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Symmetric  bool
	OnDevice   bool // its counts are in device memory
}

// SignatureOf returns the signature of calls of a collective with counts on the host and without symmetric memory.
func SignatureOf(collective plugin.Collective, dtype plugin.DType, op plugin.Op) Signature {
	key := Signature{Collective: collective, DType: plugin.Uint8}
	if collective.Reduces() {
		key.DType, key.Op = dtype, op
	} else {
		// Moving bytes is the same for every dtype, but chunk boundaries must
		// keep elements whole.
		switch dtype.Bytes() {
		case 2:
			key.DType = plugin.Float16
		case 4:
			key.DType = plugin.Int32
		case 8:
			key.DType = plugin.Int64
		}
	}
	switch collective {
	case plugin.Barrier, plugin.Signal, plugin.Wait:
		key.DType = plugin.Uint8
	}
	return key
}

// Explainable returns the signature of calls that are to be explained, and an error if there are none such.
func Explainable(collective plugin.Collective, dtype plugin.DType, op plugin.Op, bytes int64) (key Signature,
	err error) {
	switch {
	case !collective.Valid():
		return key, plugin.Errorf(plugin.InvalidArgument, "explain: collective %d is unknown", uint32(collective))
	case !dtype.Valid():
		return key, plugin.Errorf(plugin.InvalidArgument, "explain %s: dtype %d is unknown", collective, uint32(dtype))
	case collective.Reduces() && !op.Valid():
		return key, plugin.Errorf(plugin.InvalidArgument, "explain %s: reduction op %d is unknown", collective, uint32(op))
	case bytes < 0:
		return key, plugin.Errorf(plugin.InvalidArgument, "explain %s: a message has %d bytes, want 0 or more", collective,
			bytes)
	}
	return SignatureOf(collective, dtype, op), nil
}

// Signature returns the key by which the plans of a call are cached.
func (call *Call) Signature() Signature {
	key := SignatureOf(call.Collective, call.DType, call.Op)
	key.Symmetric, key.OnDevice = call.Symmetric, call.OnDevice
	return key
}

// CanBeSymmetric reports whether calls of the signature's collective can be symmetric: every rank receives, equally
// much, and there are algorithms for it.
func (s *Signature) CanBeSymmetric() bool { return canBeSymmetric(s.Collective) }

// CanBeSymmetric is Signature.CanBeSymmetric of a call.
func (call *Call) CanBeSymmetric() bool { return canBeSymmetric(call.Collective) }

func canBeSymmetric(collective plugin.Collective) bool {
	switch collective {
	case plugin.AllReduce, plugin.AllGather, plugin.AllToAll, plugin.Broadcast, plugin.Scatter:
		return true
	}
	return false
}
