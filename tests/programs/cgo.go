package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void fill(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(i * seed);
}
static uint64_t sum(const unsigned char *p, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) s = s * 31 + p[i];
    return s;
}
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

func work(n, rounds int) uint64 {
	var total uint64
	held := make([]unsafe.Pointer, 0, 32)
	for i := 0; i < rounds; i++ {
		size := C.size_t(1 + (i*7919*n)%200000)
		p := C.malloc(size)
		C.fill((*C.uchar)(p), size, C.uint(n))
		p = C.realloc(p, size*2)
		total = total*31 + uint64(C.sum((*C.uchar)(p), size))
		held = append(held, p)
		text := C.CString(fmt.Sprintf("text %d of %d", i, n))
		total += uint64(len(C.GoString(text)))
		C.free(unsafe.Pointer(text))
		if len(held) == 32 {
			for _, q := range held {
				C.free(q)
			}
			held = held[:0]
			garbage := make([][]byte, 100)
			for k := range garbage {
				garbage[k] = make([]byte, 1000*k)
			}
			total += uint64(len(garbage))
		}
	}
	for _, q := range held {
		C.free(q)
	}
	return total
}

func main() {
	rounds := 600
	if len(os.Args) > 1 {
		rounds = 10
	}
	sums := make([]uint64, 16)
	var group sync.WaitGroup
	for n := range sums {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			sums[n] = work(n+1, rounds)
		}(n)
	}
	group.Wait()
	fmt.Println(sums)
	if len(os.Args) > 1 {
		return
	}
	os.Exit(8)
}
