// A Go program: goroutines on stacks that move, called functions counted exactly.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

//go:noinline
func counted(value uint64) uint64 {
	return value*2862933555777941757 + 3037000493
}

//go:noinline
func deep(depth int, value uint64) uint64 {
	var pad [64]byte
	pad[depth%64] = byte(value)
	if depth == 0 {
		return counted(value) + uint64(pad[0])*0
	}
	return deep(depth-1, value+1)
}

func main() {
	const workers, rounds = 16, 2000
	var group sync.WaitGroup
	sums := make([]uint64, workers)
	for worker := range sums {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for round := 0; round < rounds; round++ {
				sums[worker] += deep(round%100, 1)
				if round%500 == 0 {
					runtime.GC()
				}
			}
		}(worker)
	}
	group.Wait()
	for _, sum := range sums {
		if sum != sums[0] {
			panic("a worker differs")
		}
	}
	fmt.Printf("calls %d\nchecksum %016x\nOK\n", workers*rounds, sums[0])
}
