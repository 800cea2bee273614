package cudaipc

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// images/SOURCES, which kernels/compile writes, has the sums of all sources and then of all images. A kernel that was
// changed and not compiled, or an image changed without its source, fails here; kernels/compile --check proves the
// rest.
func TestImagesBelongToTheirSources(t *testing.T) {
	file, err := os.Open(filepath.Join("images", "SOURCES"))
	require.NoError(t, err)
	defer file.Close()
	listed := map[string][]string{}
	lines := bufio.NewScanner(file)
	require.True(t, lines.Scan())
	require.Regexp(t, `^nvrtc \d+\.\d+\.\d+$`, lines.Text())
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ./")
		require.True(t, ok, lines.Text())
		folder := "kernels"
		if strings.HasSuffix(name, ".fatbin") {
			folder = "images"
		}
		listed[folder] = append(listed[folder], name)
		data, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		got := sha256.Sum256(data)
		require.Equal(t, sum, hex.EncodeToString(got[:]), "%s/%s has changed since kernels/compile ran", folder, name)
	}
	require.NoError(t, lines.Err())
	for _, folder := range []string{"kernels", "images"} {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name() != "SOURCES" {
				require.True(t, slices.Contains(listed[folder], e.Name()), "%s/%s is new since kernels/compile ran", folder,
					e.Name())
			}
		}
	}
}

// images_gen.go names each file; one that is new is not embedded until make generate has run.
func TestEveryImageIsEmbedded(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("images", "*.fatbin"))
	require.NoError(t, err)
	require.Len(t, images, len(paths), "images_gen.go embeds others; run make generate")
	for i, path := range paths {
		require.Equal(t, filepath.Base(path), images[i].Name+".fatbin")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, images[i].Data), path)
	}
}

// PyPI takes files of 100 MB, and a wheel has the images twice, in the library and in the command, beside 25 MB of
// other things. Kernels that are too many fail here, not when a wheel is built.
func TestImagesFitIntoAWheel(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("images", "*.fatbin"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	var packed bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		w, err := flate.NewWriter(&packed, flate.DefaultCompression)
		require.NoError(t, err)
		_, err = w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.Less(t, packed.Len(), 37_000_000, "bytes of the images, compressed as in a wheel")
	t.Logf("%.1f MB of 37", float64(packed.Len())/1e6)
}

// The drivers of all CUDA 12 are to load the images: machine code in the ELF of
// CUDA 12 (ABI version 7; CUDA 13 writes 8, and so do all for sm_100, which older
// drivers do not know), compressed with LZ4, since zstd came with 12.4. The fields
// of a fatbin are read where they are found in one.
func TestImagesLoadIntoOldDrivers(t *testing.T) {
	const (
		headerBytes     = 16
		kindPTX         = 1
		kindELF         = 2
		compressed      = 0x2000
		compressedOther = 0x8000
	)
	for _, image := range images {
		require.Equal(t, uint32(0xBA55ED50), binary.LittleEndian.Uint32(image.Data), image.Name)
		var list []uint32
		for rest := image.Data[headerBytes:]; len(rest) > 0; {
			kind, architecture := binary.LittleEndian.Uint16(rest), binary.LittleEndian.Uint32(rest[28:])
			flags := binary.LittleEndian.Uint64(rest[40:])
			code := rest[binary.LittleEndian.Uint32(rest[4:]):]
			require.EqualValues(t, compressed, flags&(compressed|compressedOther), "%s for %d", image.Name, architecture)
			if kind == kindELF {
				list = append(list, architecture)
				if architecture < 100 { // LZ4 begins with bytes as they are
					require.True(t, bytes.HasPrefix(code[1:], []byte("\x7fELF\x02\x01\x01\x33\x07")), "%s for %d: % x", image.Name,
						architecture, code[:12])
				}
			} else {
				require.EqualValues(t, kindPTX, kind, image.Name)
				require.EqualValues(t, 100, architecture, image.Name)
			}
			rest = code[binary.LittleEndian.Uint64(rest[8:]):]
		}
		require.Equal(t, []uint32{80, 90, 100}, list, image.Name)
	}
}
