package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/descriptors"
)

// The checks of doctor that look at the machine itself.

func checkKernel(context.Context, int) []finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("uname: %v", err)}}
	}
	release := unix.ByteSliceToString(name.Release[:])
	list := []finding{{Level: fine, Detail: fmt.Sprintf("Linux %s, %s", release, runtime.GOARCH)}}
	major, minor := 0, 0
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 5 || (major == 5 && minor < 3)) {
		list = append(list, finding{Level: broken, Detail: "no pidfd_open before Linux 5.3", Advice: "use a newer kernel"})
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return append(list, finding{Level: broken, Detail: fmt.Sprintf("pidfd_open: %v", err),
			Advice: "a seccomp filter may forbid it: deaths of ranks and plugins are noticed by it"})
	}
	_ = unix.Close(fd)
	return list
}

func checkMemfd(context.Context, int) []finding {
	fd, err := unix.MemfdCreate("shunt-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("memfd_create: %v", err),
			Advice: "a seccomp filter may forbid it: ranks share memory by it"}}
	}
	defer func() { _ = unix.Close(fd) }()
	const size = 1 << 20
	if err := unix.Ftruncate(fd, size); err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("sizing a memfd: %v", err)}}
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("mapping a memfd: %v", err),
			Advice: "the limit on address space may be too small: ulimit -v"}}
	}
	memory[size-1] = 1
	if err := unix.Munmap(memory); err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("unmapping a memfd: %v", err)}}
	}
	return []finding{{Level: fine, Detail: "memfd works; the size of /dev/shm does not matter"}}
}

func checkDescriptors(_ context.Context, world int) []finding {
	limit := descriptors.Limit()
	least := descriptors.OfProcess + descriptors.OfCommunicators(world, 1)
	if limit < least {
		return []finding{{Level: broken, Detail: fmt.Sprintf("up to %d open files", limit),
			Advice: fmt.Sprintf("a communicator of %d ranks needs about %d: ulimit -n %d", world, least, least)}}
	}
	count := 1 + (limit-least)/(descriptors.OfCommunicators(world, 2)-descriptors.OfCommunicators(world, 1))
	return []finding{{Level: fine, Detail: fmt.Sprintf("up to %d open files, enough for about %d communicators of %d ranks in host memory", limit, count, world)}}
}

func checkCPUs(_ context.Context, world int) []finding {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []finding{{Level: warn, Detail: fmt.Sprintf("sched_getaffinity: %v", err)}}
	}
	cpus := set.Count()
	list := []finding{{Level: fine, Detail: fmt.Sprintf("%d for this process", cpus)}}
	if world > cpus {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("%d ranks share %d CPUs", world, cpus),
			Advice: "ranks will sleep instead of spinning; times grow"})
	}
	if quota, ok := cpuQuota(); ok && quota < float64(min(world, cpus)) {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("the control group allows %.2g CPUs", quota),
			Advice: "a throttled rank stalls all others for up to 0.1 s; raise the quota"})
	}
	return list
}

// cpuQuota returns the limit of the control group (version 2), in CPUs.
func cpuQuota() (float64, bool) {
	text, err := os.ReadFile("/sys/fs/cgroup/cpu.max")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0, false
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || period <= 0 {
		return 0, false // "max": no limit
	}
	return quota / period, true
}

func checkMemory(context.Context, int) []finding {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return []finding{{Level: warn, Detail: fmt.Sprintf("sysinfo: %v", err)}}
	}
	unit := int64(info.Unit)
	total := int64(info.Totalram) * unit
	list := []finding{{Level: fine, Detail: fmt.Sprintf("%s in all", selector.FormatSize(total>>20<<20))}}
	var lock unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &lock); err == nil && lock.Cur != unix.RLIM_INFINITY {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("address space is limited to %s",
			selector.FormatSize(int64(lock.Cur))), Advice: "ulimit -v unlimited"})
	}
	return list
}
