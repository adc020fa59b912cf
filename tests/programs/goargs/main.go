// Functions of Go with arguments and results of many types. Each function prints its arguments, in a line that the
// tracer prints, too.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

type point struct {
	a int8
	b int32
	c string
	d uint16
}

type pair struct{ first, second int }

type thing struct {
	weight int
	name   string
}

type speaker interface{ speak(times int) int }

func (t *thing) speak(times int) int { return t.said(times) }

//go:noinline
func (t *thing) said(times int) int {
	fmt.Println("said", t.weight, t.name, times)
	return t.weight * times
}

//go:noinline
func (t thing) shown(times int) {
	fmt.Println("shown", t.weight, t.name, times)
}

//go:noinline
func integers(a int, b int8, c uint8, d int16, e uint32, f int64, g uintptr, h bool, i, j int, k int8, l int) int {
	truth := 0
	if h {
		truth = 1
	}
	fmt.Println("integers", a, b, c, d, e, f, g, truth, i, j, k, l)
	return a + l
}

//go:noinline
func text(s string, n int) string {
	fmt.Println("text", s, len(s), n)
	return s[:n]
}

//go:noinline
func slice(x []int32, s string) int {
	fmt.Println("slice", x[2], len(x), cap(x), s)
	return len(x)
}

//go:noinline
func place(p point, n int) point {
	fmt.Println("place", p.a, p.b, p.c, p.d, n)
	return point{p.a - 1, p.b - 1, p.c + "!", p.d + 1}
}

//go:noinline
func blank(_ string, a int, _ pair, b pair) int {
	fmt.Println("blank", a, b.first, b.second)
	return a
}

//go:noinline
func face(v speaker, any interface{}, n int) {
	fmt.Println("face", v.(*thing).weight, any.(int), n)
}

//go:noinline
func floats(a int, x float64, b int, y float32, c int8) (float64, int) {
	fmt.Println("floats", a, b, c)
	return x + float64(y), a + b
}

//go:noinline
func array(a [2]int, one [1]uint16, n int) int {
	fmt.Println("array", a[0], a[1], one[0], n)
	return n
}

//go:noinline
func several(n int) (int, string, error, int8) {
	return n + 1, "several", errors.New("none"), int8(-n)
}

//go:noinline
func shape[T any](value T, n int) int {
	fmt.Println("shape", n)
	return n
}

type list[T any] struct{ length int }

//go:noinline
func (l *list[T]) put(value T, n int) int {
	fmt.Println("put", l.length, n)
	return n
}

//go:noinline
func adder(more int) func(int) int {
	return func(value int) int {
		fmt.Println("adder", value)
		return value + more
	}
}

// In assembly: on the stack.
func add(a, b int64, c int8) int64

// `goargs --wait N`: all of it N times, after a line of input.
func main() {
	count := 1
	if len(os.Args) > 2 {
		fmt.Sscan(os.Args[2], &count)
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
	}
	add7 := adder(7)
	for turn := 1; turn <= count; turn++ {
		integers(2000+turn, -5, 250, -300, 4000000000, -1<<40, 77, turn%2 == 1, 9, 10*turn, -11, 12)
		text("a text of some length"[turn%5:], 3+turn)
		numbers := make([]int32, 3+turn, 20)
		numbers[2] = int32(-turn)
		slice(numbers, "behind")
		place(point{-3, -70000, "inside", 65000}, turn)
		blank("nobody", turn, pair{1, 2}, pair{3, 4 + turn})
		it := &thing{40 + turn, "stone"}
		it.speak(turn)
		it.shown(turn)
		face(it, turn*5, turn*6)
		floats(turn, 1.5, turn+1, 2.5, -7)
		array([2]int{turn, -turn}, [1]uint16{60000}, turn*3)
		several(turn)
		shape("generic", turn)
		(&list[string]{60 + turn}).put("generic", turn)
		add7(turn)
		fmt.Println("add", add(int64(turn), 1000, -2))
	}
	fmt.Println("OK")
}
