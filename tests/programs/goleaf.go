// Calls at the very end of goroutines' stacks: chains of functions that do not check the stack, nearly as deep as the
// linker allows, from every depth. The stacks of goroutines lie side by side, and each goroutine checks the contents
// of its own. Signals come all the time.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var calls, wrong atomic.Int64

//go:noinline
//go:nosplit
func leaf(value uint64) uint64 {
	return value*2862933555777941757 + 3037000493
}

//go:noinline
//go:nosplit
func third(value uint64) uint64 {
	var pad [24]uint64
	pad[value%24] = value
	return leaf(value) + pad[(value+1)%24]
}

//go:noinline
//go:nosplit
func second(value uint64) uint64 {
	var pad [24]uint64
	pad[value%24] = value
	return third(value) + pad[(value+1)%24]
}

//go:noinline
//go:nosplit
func first(value uint64) uint64 {
	var pad [24]uint64
	pad[value%24] = value
	return second(value) + pad[(value+1)%24]
}

//go:noinline
func walk(depth int, value uint64) uint64 {
	var canary [4]uint64
	for index := range canary {
		canary[index] = value ^ uint64(index)
	}
	result := first(value)
	if result != value*2862933555777941757+3037000493 {
		wrong.Add(1)
	}
	if depth > 0 {
		walk(depth-1, value+1)
	}
	for index := range canary {
		if canary[index] != value^uint64(index) {
			wrong.Add(1)
		}
	}
	return result
}

func main() {
	const workers, rounds, depths = 8, 600, 100
	if len(os.Args) > 1 {
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
	}
	runtime.SetCPUProfileRate(1000)
	var all sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := 0; round < rounds; round++ {
				depth := round % depths
				var one sync.WaitGroup
				one.Add(1)
				go func() { // runs on a new stack, which is small
					defer one.Done()
					walk(depth, uint64(round)<<20)
				}()
				one.Wait()
				calls.Add(int64(depth + 1))
				if round%100 == 0 {
					runtime.GC()
				}
			}
		}()
	}
	all.Wait()
	runtime.SetCPUProfileRate(0)
	if wrong.Load() != 0 {
		fmt.Printf("FAILED %d\n", wrong.Load())
		os.Exit(1)
	}
	fmt.Printf("calls %d\nOK\n", calls.Load())
}
