// SPDX-License-Identifier: Apache-2.0

// Says which thread it is below closures and a sort, and waits there in a system call.
package main

import (
	"fmt"
	"runtime"
	"sort"
	"syscall"
)

//go:noinline
func stop() {
	fmt.Println(syscall.Gettid())
	for {
		syscall.RawSyscall(syscall.SYS_PAUSE, 0, 0, 0)
	}
}

//go:noinline
func recurse(depth int) int {
	if depth == 0 {
		stop()
	}
	return recurse(depth-1) + 1
}

func main() {
	runtime.LockOSThread()
	syscall.RawSyscall(syscall.SYS_PRCTL, 0x59616d61, ^uintptr(0), 0) // PR_SET_PTRACER, anyone
	values := []int{4, 9, 7, 1, 3}
	sort.Slice(values, func(i, j int) bool {
		if values[i] == 7 {
			recurse(3)
		}
		return values[i] < values[j]
	})
}
