// A static server: goserve PORT REQUESTS. It answers so many connections, one after the other, and says so. Package
// net would make it a dynamic program.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func check(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func main() {
	listener, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(err)
	check(syscall.SetsockoptInt(listener, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	check(syscall.Bind(listener, &syscall.SockaddrInet4{Port: number(os.Args[1]), Addr: [4]byte{127, 0, 0, 1}}))
	check(syscall.Listen(listener, 64))
	total := 0
	for i := number(os.Args[2]); i > 0; i-- {
		connection, _, err := syscall.Accept(listener)
		check(err)
		buffer := make([]byte, 256)
		length, err := syscall.Read(connection, buffer)
		check(err)
		_, err = syscall.Write(connection, []byte("HTTP/1.0 200 OK\r\n\r\n"+string(buffer[:length])))
		check(err)
		check(syscall.Close(connection))
		total += length
	}
	fmt.Printf("bytes %d\n", total)
}
