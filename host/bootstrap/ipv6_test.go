package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func addresses(words string) (list []netip.Addr) {
	for _, w := range strings.Fields(words) {
		list = append(list, netip.MustParseAddr(w))
	}
	return list
}

func TestAddressesThatOthersTry(t *testing.T) {
	for has, want := range map[string]string{
		"127.0.0.1 ::1 10.0.0.1 fe80::1": "127.0.0.1 10.0.0.1",
		"127.0.0.1 ::1 fd00::1 10.0.0.1": "127.0.0.1 10.0.0.1 fd00::1",
		"::1 fd00::1 2001:db8::1":        "::1 fd00::1 2001:db8::1",
		"::1":                            "::1",
		"127.0.1.1 ::1 fd00::1":          "127.0.0.1 fd00::1",
		"10.0.0.1":                       "127.0.0.1 10.0.0.1",
		"127.0.0.1 10.0.0.1 10.0.1.1 10.0.2.1 10.0.3.1 10.0.4.1 ::1":    "127.0.0.1 10.0.0.1 10.0.1.1 10.0.2.1 10.0.3.1",
		"127.0.0.1 10.0.0.1 10.0.1.1 10.0.2.1 10.0.3.1 fd00::1 ::1":     "127.0.0.1 10.0.0.1 10.0.1.1 10.0.2.1 fd00::1",
		"127.0.0.1 fd00::1 fd00::2 fd00::3 fd00::4 fd00::5 169.254.0.1": "127.0.0.1 fd00::1 fd00::2 fd00::3 fd00::4",
	} {
		require.Equal(t, addresses(want), ofHost(addresses(has)), has)
	}
}

// ipv6Variable names, to a process in a network of its own, the folder in which its ranks meet.
const ipv6Variable = "SHUNT_TEST_IPV6_FOLDER"

// onlyIPv6 joins ranks on a host that has no address of IPv4, and lets another succeed the store.
func onlyIPv6() error {
	commands := []string{"ip link set lo up", "ip addr del 127.0.0.1/8 dev lo"}
	if os.Getenv("SHUNT_TEST_INTERFACE") != "" {
		commands = append(commands, "ip link add test0 type veth peer name test1", "ip link set test0 up",
			"ip link set test1 up", "ip addr add fd00::1/64 dev test0 nodad")
	}
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	forceDial = true
	lookupAddresses = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.IPv6Loopback()}, nil
	}
	file := "file://" + os.Getenv(ipv6Variable) + "/id"
	for _, url := range []string{file, "tcp://[::1]:29511", "tcp://localhost:29512"} {
		errs := each(2, func(rank int) error {
			s, err := Join(context.Background(), Config{Rank: rank, World: 2, URL: url, Timeout: 10 * time.Second,
				Logger: quiet})
			if err == nil && rank == 1 {
				at := s.standby.hub.listener.Addr().(*net.TCPAddr)
				if at.IP.To4() != nil || (url != file && !at.IP.IsLoopback()) {
					err = fmt.Errorf("on standby at %s", at)
				}
			}
			if s != nil {
				err = errors.Join(err, s.Close())
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("at %s: %w", url, err)
		}
	}
	return nil
}

// Ranks meet by a file, by an address and by a name on hosts that have no address of IPv4.
func TestRanksOnHostsOfIPv6Alone(t *testing.T) {
	for name, with := range map[string]string{"loopback": "", "interface": "SHUNT_TEST_INTERFACE=1"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "SHUNT_TEST_RANK_PROCESS=only IPv6", ipv6Variable+"="+t.TempDir(), with)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
			if err := (&exec.Cmd{Path: "/bin/true", SysProcAttr: cmd.SysProcAttr}).Run(); err != nil {
				t.Skip("user and network namespaces are absent: " + err.Error())
			}
			if _, err := exec.LookPath("ip"); err != nil {
				t.Skip("the program ip is absent")
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "done\n", string(out))
		})
	}
}
