package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Limits of a frame; a frame that exceeds one is refused before anything of
// that size is allocated.
const (
	MaxName    = 64
	MaxPayload = 16 << 20
	MaxError   = 256 << 10
)

const (
	frameMagic   = 0x4c4f4f50 // "POOL", little-endian
	frameVersion = 1
	frameHeader  = 40

	frameRequest  = 1
	frameResponse = 2

	flagFatal = 1 // response: the worker cannot be used again
	flagError = 2 // response: the error text counts, even when empty
)

var errFrame = errors.New("malformed frame")

// frame is one message between a pool and a worker.
//
// On the wire, little-endian: magic u32, version u8, kind u8, flags u8, name
// length u8, sequence u64, seed u64, nanoseconds i64, payload length u32, error
// length u32; then name, payload and error.
type frame struct {
	Kind     uint8
	Flags    uint8
	Sequence uint64
	Seed     uint64        // request: the seed of the case
	Time     time.Duration // request: time left until the deadline; response: time taken
	Name     string        // request: the handler
	Payload  []byte
	Error    string // response
}

func (f *frame) encode() ([]byte, error) {
	if len(f.Name) > MaxName || len(f.Payload) > MaxPayload {
		return nil, fmt.Errorf("frame too large: name %d of %d bytes, payload %d of %d", len(f.Name), MaxName, len(f.Payload),
			MaxPayload)
	}
	text := f.Error
	if len(text) > MaxError {
		text = text[:MaxError]
	}
	b := make([]byte, frameHeader, frameHeader+len(f.Name)+len(f.Payload)+len(text))
	binary.LittleEndian.PutUint32(b[0:], frameMagic)
	b[4], b[5], b[6], b[7] = frameVersion, f.Kind, f.Flags, uint8(len(f.Name))
	binary.LittleEndian.PutUint64(b[8:], f.Sequence)
	binary.LittleEndian.PutUint64(b[16:], f.Seed)
	binary.LittleEndian.PutUint64(b[24:], uint64(f.Time))
	binary.LittleEndian.PutUint32(b[32:], uint32(len(f.Payload)))
	binary.LittleEndian.PutUint32(b[36:], uint32(len(text)))
	b = append(b, f.Name...)
	b = append(b, f.Payload...)
	return append(b, text...), nil
}

// readFrame reads one frame. A clean end before the first byte is io.EOF; an
// end within a frame is io.ErrUnexpectedEOF.
func readFrame(r io.Reader) (*frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	if m := binary.LittleEndian.Uint32(header[0:]); m != frameMagic {
		return nil, fmt.Errorf("%w: magic %#x", errFrame, m)
	}
	if header[4] != frameVersion {
		return nil, fmt.Errorf("%w: version %d", errFrame, header[4])
	}
	f := &frame{
		Kind: header[5], Flags: header[6],
		Sequence: binary.LittleEndian.Uint64(header[8:]),
		Seed:     binary.LittleEndian.Uint64(header[16:]),
		Time:     time.Duration(binary.LittleEndian.Uint64(header[24:])),
	}
	if f.Kind != frameRequest && f.Kind != frameResponse {
		return nil, fmt.Errorf("%w: kind %d", errFrame, f.Kind)
	}
	name, payload, text := int(header[7]), binary.LittleEndian.Uint32(header[32:]), binary.LittleEndian.Uint32(header[36:])
	if name > MaxName || payload > MaxPayload || text > MaxError || f.Time < 0 {
		return nil, fmt.Errorf("%w: name %d bytes, payload %d, error %d, time %d", errFrame, name, payload, text, f.Time)
	}
	body := make([]byte, name+int(payload)+int(text))
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	f.Name = string(body[:name])
	f.Payload = body[name : name+int(payload)]
	f.Error = string(body[name+int(payload):])
	return f, nil
}

func writeFrame(w io.Writer, f *frame) error {
	b, err := f.encode()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
