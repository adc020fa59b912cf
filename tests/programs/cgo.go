// A Go program with C in it: goroutines call C, which runs on the threads' own stacks, and C calls Go again. The
// program checks the contents of both stacks afterwards, and counts its calls.
package main

/*
// A leaf, which keeps numbers below its stack pointer.
static __attribute__((noinline, noipa)) unsigned long c_leaf(unsigned long value)
{
	volatile unsigned long kept[8];
	for (unsigned index = 0; index < 8; index++)
		kept[index] = value + index;
	unsigned long sum = 0;
	for (unsigned index = 0; index < 8; index++)
		sum += kept[index];
	return sum;
}

static __attribute__((noinline, noipa)) unsigned long c_deep(unsigned depth, unsigned long value)
{
	volatile unsigned long kept = value ^ depth;
	unsigned long sum = depth ? c_deep(depth - 1, value) : c_leaf(value);
	return kept == (value ^ depth) ? sum : 0;
}

extern unsigned long goBack(unsigned long);

static __attribute__((noinline, noipa)) unsigned long c_back(unsigned long value)
{
	volatile unsigned long kept = value;
	unsigned long sum = goBack(value);
	return kept == value ? sum : 0;
}
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

const workers, depth = 8, 9

var ended atomic.Bool
var turns, wrong atomic.Int64

//export goBack
func goBack(value C.ulong) C.ulong {
	return C.ulong(fromC(uint64(value)))
}

//go:noinline
func fromC(value uint64) uint64 {
	var filled [32]uint64
	for index := range filled {
		filled[index] = value
	}
	runtime.Gosched()
	var sum uint64
	for index := range filled {
		sum += filled[index]
	}
	return sum
}

//go:noinline
func turn(value uint64) {
	var filled [32]uint64
	for index := range filled {
		filled[index] = value ^ uint64(index)
	}
	if uint64(C.c_deep(depth, C.ulong(value))) != 8*value+28 || uint64(C.c_back(C.ulong(value))) != 32*value {
		wrong.Add(1)
	}
	for index := range filled {
		if filled[index] != value^uint64(index) {
			wrong.Add(1)
		}
	}
	turns.Add(1)
}

// `cgo --wait N`: N turns of each worker, after a line of input; `cgo`: until the input ends.
func main() {
	input := bufio.NewReader(os.Stdin)
	var count uint64
	if len(os.Args) > 2 {
		fmt.Sscan(os.Args[2], &count)
		fmt.Println("ready")
		input.ReadString('\n')
	} else {
		fmt.Println("working")
		go func() {
			input.ReadString(0)
			ended.Store(true)
		}()
	}
	var group sync.WaitGroup
	for worker := uint64(0); worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := uint64(0); count == 0 && !ended.Load() || number < count; number++ {
				turn(worker<<32 | number)
			}
		}()
	}
	group.Wait()
	fmt.Println("turns", turns.Load())
	fmt.Println("wrong", wrong.Load())
	if wrong.Load() == 0 && turns.Load() > 0 {
		fmt.Println("OK")
	}
}
