// Package process is the carrier of transports that run in their own process.
//
// The host calls Start and gets a Client, whose Transport calls the plugin's process by
// RPC. An author's main is
//
//	func main() { process.Serve(mytransport.Transport{}) }
//
// The carrier is hashicorp/go-plugin over gRPC with AutoMTLS. Around it stand
// what a job of many ranks needs: a pinned checksum without a window between
// check and execution, descriptors of regions passed over an inherited socket,
// a plugin's death noticed within milliseconds, a stopped plugin within two
// seconds and a wedged one within five (on a busy machine later), log lines
// that cannot harm the host, shutdown in bounded time, and no process left
// behind when either side is killed.
//
// RPC is control plane only: plans and regions cross once, and what runs per
// operation runs in the host. Nothing here maps memory or runs plans.
package process
