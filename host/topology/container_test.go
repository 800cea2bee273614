package topology

import (
	"io/fs"
	"maps"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// processFiles are the files in /proc of a process without limits that is in no container.
func processFiles() fstest.MapFS {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	return fstest.MapFS{
		"proc/sys/kernel/random/boot_id": {Data: []byte("1b4e28ba-2fa1-11d2-883f-0016d3cca427\n")},
		"proc/self/ns/net":               link("net:[1]"),
		"proc/self/ns/pid":               link("pid:[2]"),
		"proc/self/cgroup":               {Data: []byte("0::/\n")},
	}
}

// Each thing by which containers are known is enough, and what a container limits is told.
func TestContainers(t *testing.T) {
	file := &fstest.MapFile{}
	plain := Container{CPUSet: Local().CPUSet, PIDNamespace: "pid:[2]", NetworkNamespace: "net:[1]"}
	kind := func(name string) Container {
		c := plain
		c.Kind = name
		return c
	}
	limited, visible := plain, plain
	limited.CPUQuota, visible.VisibleDevices = 2, "3,1"
	for name, c := range map[string]struct {
		files fstest.MapFS
		env   map[string]string
		want  Container
	}{
		"none":             {nil, nil, plain},
		"docker":           {fstest.MapFS{".dockerenv": file}, nil, kind("docker")},
		"podman":           {fstest.MapFS{"run/.containerenv": file}, nil, kind("podman")},
		"podman as docker": {fstest.MapFS{"run/.containerenv": file, ".dockerenv": file}, nil, kind("podman")},
		"kubernetes": {fstest.MapFS{".dockerenv": file}, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
			kind("kubernetes")},
		"systemd's word":  {nil, map[string]string{"container": "lxc"}, kind("lxc")},
		"a quota":         {fstest.MapFS{"sys/fs/cgroup/cpu.max": {Data: []byte("150000 100000\n")}}, nil, limited},
		"visible devices": {nil, map[string]string{"CUDA_VISIBLE_DEVICES": "3,1"}, visible},
	} {
		t.Run(name, func(t *testing.T) {
			root := processFiles()
			maps.Copy(root, c.files)
			require.Equal(t, c.want, container(root, func(name string) string { return c.env[name] }))
		})
	}
}

// Processes are on one host if they have its boot, its network and its name in common, or the user says so. Of each,
// one that differs is another host, and descriptors need the first two.
func TestWhatMakesAHost(t *testing.T) {
	defer func(before func() (string, error)) { hostname = before }(hostname)
	type host struct{ name, id, kernel string }
	look := func(change func(fstest.MapFS), name, own string) host {
		root := processFiles()
		change(root)
		hostname = func() (string, error) { return name, nil }
		known, id := identity(func(string) string { return own }, root)
		return host{known, id, kernel(root)}
	}
	same := func(fstest.MapFS) {}
	one := look(same, "a", "")
	require.Equal(t, one, look(same, "a", ""))
	require.Equal(t, "a", one.name)
	for name, change := range map[string]func(fstest.MapFS){
		"boot":    func(root fstest.MapFS) { root["proc/sys/kernel/random/boot_id"].Data = []byte("another") },
		"network": func(root fstest.MapFS) { root["proc/self/ns/net"].Data = []byte("net:[7]") },
	} {
		other := look(change, "a", "")
		require.NotEqual(t, one.id, other.id, name)
		require.NotEqual(t, one.kernel, other.kernel, name)
		require.Equal(t, look(same, "a", "x").id, look(change, "b", "x").id, "SHUNT_HOST_ID goes before the %s", name)
	}
	other := look(same, "b", "")
	require.NotEqual(t, one.id, other.id, "the host's name")
	require.Equal(t, one.kernel, other.kernel)
	require.NotEqual(t, look(same, "a", "x").id, look(same, "a", "y").id)
	// Where the host has no name it has one for messages.
	require.Equal(t, "unknown host", look(same, "", "").name)
	// Without /proc the name alone tells hosts apart.
	nothing := func(root fstest.MapFS) { clear(root) }
	bare := look(nothing, "a", "")
	require.Equal(t, bare, look(nothing, "a", ""))
	require.NotEqual(t, bare.id, look(nothing, "b", "").id)
}
