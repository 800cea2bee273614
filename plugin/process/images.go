package process

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Images are tens of MB, and each communicator has an endpoint. So they cross once: an endpoint opens with their
// digest, and the host asks for those whose digest it does not know.

// maxDigest is the longest digest that a plugin may have.
const maxDigest = 64

// digests knows the digest of the images that were published last. They are kept, so that nothing else can be where
// they are, and as they are read-only the same memory holds the same images.
type digests struct {
	mu     sync.Mutex
	images []plugin.Image
	digest []byte
}

func (d *digests) digestOf(images []plugin.Image) []byte {
	if len(images) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.EqualFunc(d.images, images, sameMemory) {
		d.images, d.digest = slices.Clone(images), digest(images)
	}
	return d.digest
}

func sameMemory(a, b plugin.Image) bool {
	return a.Name == b.Name && len(a.Data) == len(b.Data) && unsafe.SliceData(a.Data) == unsafe.SliceData(b.Data)
}

func digest(images []plugin.Image) []byte {
	h := sha256.New()
	for _, i := range images {
		for _, part := range [][]byte{[]byte(i.Name), i.Data} {
			_ = binary.Write(h, binary.LittleEndian, uint64(len(part)))
			_, _ = h.Write(part)
		}
	}
	return h.Sum(nil)
}

// published holds the images that a plugin has published last.
type published struct {
	mu     sync.Mutex
	digest []byte
	images []plugin.Image
}

// of returns the images of a digest, which fetch gets where they are not known.
func (p *published) of(digest []byte, fetch func() ([]plugin.Image, error)) ([]plugin.Image, error) {
	if len(digest) == 0 {
		return nil, nil
	}
	if len(digest) > maxDigest {
		return nil, plugin.Errorf(plugin.Protocol, "its images have a digest of %d bytes, want at most %d", len(digest),
			maxDigest)
	}
	p.mu.Lock()
	known, images := bytes.Equal(p.digest, digest), p.images
	p.mu.Unlock()
	if known {
		return images, nil
	}
	images, err := fetch()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.digest, p.images = bytes.Clone(digest), images
	return images, nil
}
