// Goroutines that sleep, so that the runtime's threads wait in futex(2).
package main

import (
	"fmt"
	"sync"
	"time"
)

//go:noinline
func nap(group *sync.WaitGroup) {
	time.Sleep(20 * time.Millisecond)
	group.Done()
}

func main() {
	var group sync.WaitGroup
	for round := 0; round < 5; round++ {
		group.Add(1)
		go nap(&group)
		group.Wait()
	}
	fmt.Println("OK")
}
