// A Go program whose faults become panics, by the address at which they happen: the runtime looks the function up, and
// unwinds from there.
package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

type node struct {
	pad   [8]uint64
	value uint64
}

//go:noinline
func readField(n *node) uint64 {
	return n.value + 1
}

//go:noinline
func callFunction(f func(uint64) uint64, value uint64) uint64 {
	return f(value) + 1
}

//go:noinline
func divide(dividend, divisor uint64) uint64 {
	return dividend/divisor + 1
}

// Runs f. If f panics because of a fault, the stack must name the function with the fault.
func recovered(name string, f func()) (faulted bool) {
	defer func() {
		if reason := recover(); reason != nil {
			if _, ok := reason.(runtime.Error); !ok {
				panic(reason)
			}
			if !strings.Contains(string(debug.Stack()), "main."+name+"(") {
				panic("the stack does not name " + name)
			}
			faulted = true
		}
	}()
	f()
	return false
}

func main() {
	const workers, rounds = 4, 200
	var group sync.WaitGroup
	var lock sync.Mutex
	faults := 0
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			there := &node{value: 41}
			double := func(value uint64) uint64 { return 2 * value }
			for round := 0; round < rounds; round++ {
				found := 0
				for _, faulted := range []bool{
					recovered("readField", func() { readField(nil) }),
					recovered("callFunction", func() { callFunction(nil, 1) }),
					recovered("divide", func() { divide(1, uint64(round-round)) }),
				} {
					if faulted {
						found++
					}
				}
				if readField(there) != 42 || callFunction(double, 20) != 41 || divide(80, 2) != 41 {
					panic("a result differs")
				}
				lock.Lock()
				faults += found
				lock.Unlock()
			}
		}()
	}
	group.Wait()
	fmt.Printf("faults %d\nOK\n", faults)
}
