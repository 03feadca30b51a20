// SPDX-License-Identifier: Apache-2.0
package main

import "fmt"

type cart struct{ sum int }

//go:noinline
func (c *cart) total(count int) int {
	return c.sum * count
}

//go:noinline
func twice[T int | string](value T) T {
	return value + value
}

func main() {
	fmt.Println((&cart{3}).total(4), twice(5), twice("x"))
}
