// A server in Go, static: it keeps 48 MiB of pages in a map, and answers over TCP what is in one of them. No agent enters it.
package main

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"strings"
)

const pages = 12288

// What page n holds: half of it repeats.
func page(n int) []byte {
	bytes := make([]byte, 4096)
	word := uint32(n)*2654435761 | 1
	for i := range bytes {
		if i%2 == 0 {
			word ^= word << 13
			word ^= word >> 17
			word ^= word << 5
			bytes[i] = byte(word)
		}
	}
	return bytes
}

func main() {
	kept := make(map[int][]byte)
	for n := 0; n < pages; n++ {
		kept[n] = page(n)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("serving", listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			lines := bufio.NewScanner(connection)
			for lines.Scan() {
				n, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
				if err != nil || kept[n] == nil {
					fmt.Fprintln(connection, "none")
					continue
				}
				is := crc32.ChecksumIEEE(kept[n])
				fmt.Fprintln(connection, n, is == crc32.ChecksumIEEE(page(n)))
			}
		}()
	}
}
