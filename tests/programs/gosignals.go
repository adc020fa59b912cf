// Signals all the time, and a nil dereference recovered between any two of them, in goroutines on
// threads that come and go; processes are started meanwhile. Works until its input ends.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

//go:noinline
func nothing() (recovered bool) {
	defer func() { recovered = recover() != nil }()
	var pointer *int
	return *pointer == 0
}

func main() {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGUSR1)
	var ended atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadString(0)
		ended.Store(true)
	}()
	var rounds, wrong int64
	fmt.Println("working")
	for !ended.Load() {
		var group sync.WaitGroup
		for number := 0; number < 8; number++ {
			group.Add(1)
			go func() {
				defer group.Done()
				if !nothing() {
					atomic.AddInt64(&wrong, 1)
				}
				syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			}()
		}
		group.Wait()
		if rounds++; rounds%500 == 0 && exec.Command("/bin/true").Run() != nil {
			wrong++
		}
	}
	fmt.Println("wrong", wrong)
	if wrong == 0 {
		fmt.Println("OK")
	}
}
