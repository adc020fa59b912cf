// A Go program that executes its first argument with the others, several times. Between two of them the tracer has the
// time to end the session of the first.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

func main() {
	for i := 0; i < 4; i++ {
		command := exec.Command(os.Args[1], os.Args[2:]...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
