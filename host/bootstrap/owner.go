package bootstrap

import (
	"io/fs"
	"syscall"
)

// ownerOf is the user a file belongs to, where the system says so.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
