// Goroutines that go from thread to thread, on stacks that grow and move. Their work is summed up
// here, for the tracer's test.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const workers, keys = 16, 8

var number, sum, returned, calls, depths, inner, outer atomic.Int64
var counts [keys]atomic.Int64
var kept [64]atomic.Pointer[[]byte]

func goroutine() int {
	text := make([]byte, 64)
	fields := bytes.Fields(text[:runtime.Stack(text, false)])
	id, _ := strconv.Atoi(string(fields[1]))
	return id
}

//go:noinline
func hit(value, key, id int) int {
	return value ^ key
}

// Uses a different depth of stack each time, so the stack grows, is copied, and shrinks with a collection.
//
//go:noinline
func deep(depth, value, key, id int) int {
	var pad [96]byte
	pad[depth%96] = byte(value)
	if depth == 0 {
		return hit(value, key, id)
	}
	return deep(depth-1, value, key, id) + int(pad[(depth+1)%96])
}

// Work that takes time, usually on more than one thread.
//
//go:noinline
func handle(id int, pass chan int) int {
	start := time.Now()
	for turn := 0; turn < 3; turn++ {
		runtime.Gosched()
		pass <- id
		<-pass
		time.Sleep(100 * time.Microsecond)
	}
	inner.Add(int64(time.Since(start)))
	return id
}

func work(count int) {
	id := goroutine()
	var own, back int64
	var own_counts [keys]int64
	random := uint64(id)*2862933555777941757 + 1
	for turn := 0; turn < count; turn++ {
		random = random*6364136223846793005 + 1442695040888963407
		value, key := int(random>>40), int(random>>33)%keys
		own += int64(value)
		own_counts[key]++
		if turn%64 == 0 {
			depth := int(random>>50) % 60
			back += int64(deep(depth, value, key, id))
			calls.Add(int64(depth + 1))
			depths.Add(int64((depth + 1) * (depth + 2) / 2))
			garbage := make([]byte, 256+value%1024)
			kept[key].Store(&garbage)
		} else {
			back += int64(hit(value, key, id))
		}
		if turn%256 == 0 {
			runtime.Gosched()
		}
	}
	sum.Add(own)
	returned.Add(back)
	for key := range own_counts {
		counts[key].Add(own_counts[key])
	}
	number.Add(1)
}

func wait(count int, pass chan int) {
	id := goroutine()
	for turn := 0; turn < count; turn++ {
		start := time.Now()
		handle(id, pass)
		outer.Add(int64(time.Since(start)))
	}
}

// `gotasks --wait hits N` or `gotasks --wait waits N`: N hits or waits, after a line of input.
func main() {
	what, count := "hits", 1000
	if len(os.Args) > 2 {
		fmt.Sscan(os.Args[2], &count)
		if len(os.Args) > 3 {
			what = os.Args[3]
		}
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
	}
	runtime.GOMAXPROCS(4)
	pass := make(chan int, workers/2)
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			if what == "hits" {
				// Goroutines come and go: their numbers are never used again.
				for part := 0; part < 4; part++ {
					group.Add(1)
					go func() {
						defer group.Done()
						work(count / workers / 4)
					}()
				}
			} else {
				wait(count, pass)
			}
		}()
	}
	group.Wait()
	fmt.Println("sum", sum.Load())
	fmt.Println("returned", returned.Load())
	for key := range counts {
		fmt.Printf("key%d %d\n", key, counts[key].Load())
	}
	fmt.Println("goroutines", number.Load())
	fmt.Println("calls", calls.Load())
	fmt.Println("depths", depths.Load())
	fmt.Println("inner", inner.Load())
	fmt.Println("outer", outer.Load())
	fmt.Println("OK")
}
