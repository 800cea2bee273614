package diagnosis

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// network says what may be wrong between this rank's host and another's, whose rank has done its part of a call.
func (o *Observer) network(peer int) string {
	theirs, ours := o.Topology.Places[peer].Host, o.Topology.Places[o.Rank].Host
	if o.heard(peer) {
		return fmt.Sprintf("earlier calls passed between host %s and host %s, so it is slow or interrupted, and SHUNT_TIMEOUT bounds a call",
			theirs, ours)
	}
	return fmt.Sprintf("host %s and host %s must reach each other on all ports, and by the interfaces that their transport uses%s; if they do, the network is too slow for this call, which SHUNT_TIMEOUT bounds",
		theirs, ours, o.interfaces())
}

// heard reports whether a recorded operation that has ended well took something that a peer sent.
func (o *Observer) heard(peer int) bool {
	return slices.ContainsFunc(o.Engine.Flights(), func(f executor.Flight) bool {
		return f.End != 0 && !f.Failed && brings(f, o.Rank, peer)
	})
}

// brings reports whether an operation of a rank needs something of a peer.
func brings(f executor.Flight, rank, peer int) bool {
	switch f.Collective {
	case plugin.Send, plugin.Put, plugin.Signal:
		return false
	case plugin.Recv, plugin.Broadcast, plugin.Scatter, plugin.ScatterV:
		return f.Root == peer
	case plugin.Reduce, plugin.Gather, plugin.GatherV:
		return f.Root == rank
	}
	return true
}

// interfaces says how to choose the interfaces of a transport between hosts, and which this host has.
func (o *Observer) interfaces() string {
	variable := "UCX_NET_DEVICES"
	if o.OnDevice {
		variable = "NCCL_SOCKET_IFNAME"
	}
	text := " (a variable of its library chooses them, such as " + variable
	if has := interfacesOf(readInterfaces()); has != "" {
		text += fmt.Sprintf(", and host %s has %s", o.Topology.Places[o.Rank].Host, has)
	}
	return text + ")"
}

// networkInterface is one that is up, with its addresses that other hosts may reach.
type networkInterface struct {
	name      string
	addresses []string
}

// mostInterfaces and mostAddresses bound the text: hosts of containers have hundreds.
const mostInterfaces, mostAddresses = 4, 2

func interfacesOf(all []networkInterface) string {
	var texts []string
	for _, i := range all[:min(len(all), mostInterfaces)] {
		texts = append(texts, i.name+" "+strings.Join(i.addresses[:min(len(i.addresses), mostAddresses)], " "))
	}
	text := strings.Join(texts, ", ")
	if more := len(all) - mostInterfaces; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func readInterfaces() (list []networkInterface) {
	all, _ := net.Interfaces() // without them the text names none
	for _, i := range all {
		n := networkInterface{name: i.Name}
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if at, is := a.(*net.IPNet); is && at.IP.IsGlobalUnicast() {
				n.addresses = append(n.addresses, at.IP.String())
			}
		}
		if i.Flags&net.FlagUp != 0 && n.addresses != nil {
			list = append(list, n)
		}
	}
	return list
}
