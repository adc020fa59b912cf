// Goroutines whose small stacks lie side by side in the heap, each full of its own numbers. A goroutine checks its
// numbers all the time, mostly near the lowest address of its stack. Works until its input ends.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

const goroutines = 64

var ended atomic.Bool
var rounds, wrong atomic.Int64

// Without a check of the stack: its array lies below what Go keeps free for such functions.
//
//go:noinline
//go:nosplit
func lowest(number uint64) (whole bool) {
	var filled [88]uint64
	for index := range filled {
		filled[index] = number ^ uint64(index)
	}
	whole = true
	for round := 0; round < 200; round++ {
		for index := range filled {
			whole = whole && filled[index] == number^uint64(index)
		}
	}
	return whole
}

// Its array lies near the highest address of the stack, where the neighbour's ends.
//
//go:noinline
func highest(number uint64) {
	var filled [96]uint64
	for index := range filled {
		filled[index] = number + uint64(index)
	}
	for !ended.Load() {
		if !lowest(number) {
			wrong.Add(1)
		}
		for index := range filled {
			if filled[index] != number+uint64(index) {
				wrong.Add(1)
			}
		}
		rounds.Add(1)
		runtime.Gosched()
	}
}

func main() {
	var group sync.WaitGroup
	for number := uint64(1); number <= goroutines; number++ {
		group.Add(1)
		go func() {
			defer group.Done()
			highest(number << 32)
		}()
	}
	fmt.Println("working")
	bufio.NewReader(os.Stdin).ReadString(0)
	ended.Store(true)
	group.Wait()
	fmt.Println("rounds", rounds.Load())
	fmt.Println("wrong", wrong.Load())
	if wrong.Load() == 0 && rounds.Load() > goroutines {
		fmt.Println("OK")
	}
}
