// System calls from goroutines, each a known number of times: gocalls [--wait] [goroutines] [rounds]
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
)

func check(right bool, what string) {
	if !right {
		fmt.Println("FAILED", what)
		os.Exit(1)
	}
}

func work(rounds int) {
	parent := os.Getppid()
	for i := 0; i < rounds; i++ {
		check(syscall.Getppid() == parent, "getppid")
		_, err := syscall.Dup(-1)
		check(err == syscall.EBADF, "dup")
		number, _, errno := syscall.RawSyscall6(syscall.SYS_GETPGID, 0, 0, 0, 0, 0, 0)
		check(errno == 0 && number != 0, "getpgid")
		_, _, errno = syscall.Syscall6(400, 1, 2, 3, 4, 5, 6)
		check(errno == syscall.ENOSYS, "400")
	}
}

func main() {
	arguments := os.Args[1:]
	waits := len(arguments) > 0 && arguments[0] == "--wait"
	if waits {
		arguments = arguments[1:]
	}
	number := func(index, otherwise int) int {
		if index < len(arguments) {
			value, err := strconv.Atoi(arguments[index])
			check(err == nil, "an argument")
			return value
		}
		return otherwise
	}
	goroutines, rounds := number(0, 4), number(1, 100)
	if waits {
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
	}
	var all sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		all.Add(1)
		go func() { work(rounds); all.Done() }()
	}
	all.Wait()
	each := goroutines * rounds
	fmt.Printf("getppid %d\ndup %d\ngetpgid %d\nsys_400 %d\n", each+goroutines, each, each, each)
	fmt.Println("OK")
}
