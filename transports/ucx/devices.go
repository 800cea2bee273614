package ucx

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/shunt-ccl/shunt/plugin/environment"
)

const devicesVariable = "UCX_NET_DEVICES"

// leavesBridges is the oldest UCX (major * 1000 + minor) that leaves bridges out itself; UCX_TCP_BRIDGE_ENABLE=y has it
// use them.
const leavesBridges = 1016

var logLeft sync.Once

// What tests replace: the root of the file system, and the interfaces that UCX would use.
var (
	fileSystem       = ""
	activeInterfaces = findInterfaces
)

// devices returns the network devices that UCX is to use; "": as its variables say.
func (l *library) devices() string {
	if l.version >= leavesBridges || environment.Get(devicesVariable) != "" {
		return ""
	}
	use, left := netDevices(fileSystem, activeInterfaces())
	if left != nil {
		logLeft.Do(func() {
			slog.Info("ucx: bridges that lead to no other host are not used", "bridges", left, "used", use,
				"variable", devicesVariable)
		})
	}
	return use
}

// netDevices returns the value of UCX's NET_DEVICES without bridges of this host alone, as docker0 is, and these; "" if
// there are none. Other hosts have such bridges too, with the same address, and UCX connects by every interface. UCX
// has no list of what to leave out, and the names of RDMA devices are its own: where there are any, all stay. root is
// the root of the file system, active the interfaces that UCX uses.
func netDevices(root string, active []string) (use string, left []string) {
	if rdma, _ := os.ReadDir(root + "/sys/class/infiniband"); len(rdma) > 0 {
		return "", nil
	}
	routes, _ := os.ReadFile(root + "/proc/net/route")
	var kept []string
	for _, name := range active {
		if isInner(root+"/sys/class/net/", name) && !isDefault(string(routes), name) {
			left = append(left, name)
		} else {
			kept = append(kept, name)
		}
	}
	if left == nil || kept == nil {
		return "", nil
	}
	return strings.Join(kept, ","), left
}

// isInner reports whether an interface is a bridge none of whose ports leads out of this host: a network card, or what
// is upon another interface, as a bond or a VLAN.
func isInner(interfaces, name string) bool {
	ports, err := os.ReadDir(interfaces + name + "/brif")
	return err == nil && !slices.ContainsFunc(ports, func(port os.DirEntry) bool {
		lower, _ := filepath.Glob(interfaces + port.Name() + "/lower_*")
		_, err := os.Stat(interfaces + port.Name() + "/device")
		return err == nil || len(lower) > 0
	})
}

// isDefault reports whether a default route uses an interface. A line of routes is the interface's name, the
// destination, the gateway and other columns.
func isDefault(routes, name string) bool {
	for line := range strings.Lines(routes) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name && f[1] == "00000000" {
			return true
		}
	}
	return false
}

// findInterfaces returns the interfaces that UCX uses.
func findInterfaces() (names []string) {
	all, _ := net.Interfaces() // without them UCX uses all of its own
	for _, i := range all {
		addresses, _ := i.Addrs()
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0 && slices.ContainsFunc(addresses, func(a net.Addr) bool {
			at, is := a.(*net.IPNet)
			return is && !at.IP.IsLinkLocalUnicast()
		}) {
			names = append(names, i.Name)
		}
	}
	return names
}
