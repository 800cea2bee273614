package cudaipc

import (
	"embed"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

//go:embed images/*.fatbin
var files embed.FS

// images are the compiled kernels, one image for each .cu file and named like
// it. The data is shared and must not be written.
var images = func() []plugin.Image {
	entries, err := files.ReadDir("images")
	if err != nil {
		panic("cudaipc: embedded images: " + err.Error())
	}
	var list []plugin.Image
	for _, e := range entries {
		data, err := files.ReadFile("images/" + e.Name())
		if err != nil {
			panic("cudaipc: embedded images: " + err.Error())
		}
		list = append(list, plugin.Image{Name: strings.TrimSuffix(e.Name(), ".fatbin"), Data: data})
	}
	return list
}()
