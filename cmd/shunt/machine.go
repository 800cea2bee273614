package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/affinity"
	"github.com/shunt-ccl/shunt/internal/descriptors"
)

// The checks of doctor that look at the machine itself.

func checkKernel(context.Context, int) []finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return []finding{{Level: broken, Detail: fmt.Sprintf("uname: %v", err)}}
	}
	list := []finding{{Level: fine, Detail: fmt.Sprintf("Linux %s, %s", unix.ByteSliceToString(name.Release[:]),
		runtime.GOARCH)}}
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		_ = unix.Close(fd)
	} else {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("pidfd_open: %v", err),
			Advice: "Linux before 5.3 has none, and a seccomp filter may forbid it: that a rank died is noticed later if a " +
				"child of it lives on"})
	}
	if err := readSelf(); err != nil {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("process_vm_readv: %v", err),
			Advice: "a seccomp filter may forbid it: ranks copy long messages twice, through shared memory, and not straight " +
				"out of each other's memory, which can take twice as long"})
	}
	return list
}

// readSelf reads this process's memory as ranks read each other's.
func readSelf() error {
	var from, to [1]byte
	_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &to[0], Len: 1}},
		[]unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}, 0)
	return err
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
		return []finding{{Level: broken, Detail: fmt.Sprintf("sizing a memfd: %v", err),
			Advice: "the limit on the size of files holds for shared memory too: ulimit -f unlimited"}}
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
	allowed, err := affinity.Get()
	if err != nil {
		return []finding{{Level: warn, Detail: fmt.Sprintf("sched_getaffinity: %v", err),
			Advice: "a seccomp filter may forbid it: ranks count on all CPUs that are online, and are not bound to CPUs"}}
	}
	cpus := len(allowed)
	list := []finding{{Level: fine, Detail: fmt.Sprintf("%d for this process", cpus)}}
	if world > cpus {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("%d ranks share %d CPUs", world, cpus),
			Advice: "ranks will sleep instead of spinning; times grow"})
	}
	if quota := topology.ControlGroups(os.DirFS("/")).CPUs; quota > 0 && quota < float64(min(world, cpus)) {
		list = append(list, finding{Level: warn, Detail: fmt.Sprintf("the control group allows %.2g CPUs", quota),
			Advice: "a throttled rank stalls all others for up to 0.1 s; raise the quota"})
	}
	return list
}

func checkMemory(context.Context, int) []finding {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return []finding{{Level: warn, Detail: fmt.Sprintf("sysinfo: %v", err)}}
	}
	unit := int64(info.Unit)
	total := int64(info.Totalram) * unit
	detail := selector.FormatSize(total>>20<<20) + " in all"
	if limit := topology.ControlGroups(os.DirFS("/")).Memory; limit > 0 && limit < total {
		detail += ", of which the control group allows " + selector.FormatSize(limit>>10<<10)
	}
	list := []finding{{Level: fine, Detail: detail}}
	for _, l := range []struct {
		resource     int
		what, advice string
	}{
		{unix.RLIMIT_AS, "address space", "ulimit -v unlimited"},
		{unix.RLIMIT_FSIZE, "the size of files, and of shared memory with it,", "ulimit -f unlimited"},
	} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(l.resource, &limit); err == nil && limit.Cur < 1<<62 {
			list = append(list, finding{Level: warn, Detail: fmt.Sprintf("%s is limited to %s", l.what,
				selector.FormatSize(int64(limit.Cur))), Advice: l.advice})
		}
	}
	return list
}
