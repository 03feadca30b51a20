// SPDX-License-Identifier: Apache-2.0
// Calls work 100 times in one thread, and Total from 8 goroutines whose stacks grow and that change threads.
package main

import (
	"os"
	"runtime"
)

type cart struct{ sum int }

//go:noinline
func (c *cart) Total(depth int) int {
	var room [64]int
	room[depth%64] = c.sum
	if depth%50 == 0 {
		runtime.Gosched()
	}
	if depth == 0 {
		return room[0]
	}
	return c.Total(depth-1) + room[depth%64]
}

//go:noinline
func work(n int) int { return 2*n + 1 }

//go:noinline
func twice[T int | string](value T) T { return value + value }

func main() {
	runtime.LockOSThread()
	sum := 0
	for i := 0; i < 100; i++ {
		sum += work(i)
	}
	done := make(chan int)
	for i := 0; i < 8; i++ {
		go func() { done <- (&cart{3}).Total(200) }()
	}
	for i := 0; i < 8; i++ {
		sum += <-done
	}
	if sum != 10000+8*603 || twice(sum) != 2*sum {
		os.Exit(1)
	}
}
