// A Go program for the soak: batches of calls of main.soakCall on request, by goroutines whose
// arrays are checked; see soak.c.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

const goroutines = 16

//go:noinline
func soakCall(number uint64) uint64 {
	return number*2654435761 ^ number>>3
}

// An array on the goroutine's own stack, to which no other goroutine may write.
//
//go:noinline
func calls(from, to uint64) (sum uint64, whole bool) {
	var filled [512]uint64
	for index := range filled {
		filled[index] = from + uint64(index)
	}
	for number := from; number < to; number++ {
		sum += soakCall(number)
		if number%64 == 0 {
			runtime.Gosched()
		}
	}
	whole = true
	for index := range filled {
		whole = whole && filled[index] == from+uint64(index)
	}
	return sum, whole
}

func batch(count uint64) {
	var group sync.WaitGroup
	sums := make([]uint64, goroutines)
	whole := make([]bool, goroutines)
	for index := uint64(0); index < goroutines; index++ {
		group.Add(1)
		go func(index uint64) {
			defer group.Done()
			sums[index], whole[index] = calls(count*index/goroutines, count*(index+1)/goroutines)
		}(index)
	}
	group.Wait()
	var sum, expected uint64
	for index := range sums {
		sum += sums[index]
		if !whole[index] {
			fmt.Println("FAILED: an array was overwritten")
			os.Exit(1)
		}
	}
	for number := uint64(0); number < count; number++ {
		expected += number*2654435761 ^ number>>3
	}
	if sum != expected {
		fmt.Println("FAILED: wrong sum")
		os.Exit(1)
	}
}

// Work that is not counted in any batch: garbage, and a map that grows.
func noise() {
	for round := 0; ; round++ {
		words := map[string]int{}
		for word := 0; word < 1000; word++ {
			words[strconv.Itoa(word*round)] = word
		}
		if round%16 == 0 {
			runtime.GC()
		}
	}
}

func main() {
	go noise()
	fmt.Println("working")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		count, err := strconv.ParseUint(input.Text(), 10, 64)
		if err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		batch(count)
		fmt.Println("done", count)
	}
	fmt.Println("OK")
}
