// Command load sends GET requests over TLS and tells how long they took.
//
// It reads one JSON document of settings from standard input, writes a line when the requests begin to count,
// and a JSON document of results at the end.
// Without a rate each connection sends its next request when the last one is answered. With a rate, requests
// are due at even times whatever the server does, and a request's time counts from when it was due: one that
// had to wait for a free connection has waited.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type settings struct {
	Address     string      `json:"address"`
	Certificate string      `json:"certificate"`
	Key         string      `json:"key"`
	Headers     [][2]string `json:"headers"`
	Paths       []string    `json:"paths"`
	Connections int         `json:"connections"`
	Rate        float64     `json:"rate"`
	WarmSeconds float64     `json:"warm_seconds"`
	Seconds     float64     `json:"seconds"`
}

type results struct {
	Requests   int            `json:"requests"`
	Statuses   map[string]int `json:"statuses"`
	Seconds    float64        `json:"seconds"`
	Bytes      int64          `json:"bytes"`
	P50ms      float64        `json:"p50_ms"`
	P99ms      float64        `json:"p99_ms"`
	MaxMs      float64        `json:"max_ms"`
	CPUSeconds float64        `json:"cpu_seconds"`
	Unsent     int            `json:"unsent"`
}

type worker struct {
	took     []time.Duration
	statuses map[string]int
	bytes    int64
}

func main() {
	var given settings
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fail(err)
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
		if err != nil {
			fail(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	json.NewEncoder(os.Stdout).Encode(run(given, config))
}

func run(given settings, config *tls.Config) results {
	requests := make([][]byte, len(given.Paths))
	for i, path := range given.Paths {
		requests[i] = request(given, path)
	}
	connections := make([]net.Conn, given.Connections)
	for i := range connections {
		connections[i] = dial(given.Address, config)
	}
	workers := make([]worker, given.Connections)
	var next atomic.Int64
	var wait sync.WaitGroup
	begin := time.Now()
	counted := begin.Add(time.Duration(given.WarmSeconds * float64(time.Second)))
	end := counted.Add(time.Duration(given.Seconds * float64(time.Second)))
	time.AfterFunc(time.Until(counted), func() { fmt.Println("counting") })
	for i := range workers {
		workers[i].statuses = map[string]int{}
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			workers[i].work(connections[i], given, config, requests, &next, begin, counted, end)
		}(i)
	}
	wait.Wait()
	return summary(given, workers, time.Since(counted))
}

func (w *worker) work(connection net.Conn, given settings, config *tls.Config, requests [][]byte,
	next *atomic.Int64, begin, counted, end time.Time) {
	reader := bufio.NewReaderSize(connection, 64*1024)
	for time.Now().Before(end) {
		number := next.Add(1) - 1
		due := time.Now()
		if given.Rate > 0 {
			due = begin.Add(time.Duration(float64(number) / given.Rate * float64(time.Second)))
			if !due.Before(end) {
				return
			}
			time.Sleep(time.Until(due))
		}
		status, size, err := exchange(connection, reader, requests[number%int64(len(requests))])
		if err != nil {
			w.statuses["broken"]++
			connection.Close()
			connection = dial(given.Address, config)
			reader.Reset(connection)
			continue
		}
		if due.Before(counted) {
			continue
		}
		w.took = append(w.took, time.Since(due))
		w.statuses[status]++
		w.bytes += size
	}
	connection.Close()
}

func exchange(connection net.Conn, reader *bufio.Reader, request []byte) (string, int64, error) {
	if _, err := connection.Write(request); err != nil {
		return "", 0, err
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return "", 0, err
	}
	size, err := io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return fmt.Sprint(response.StatusCode), size, err
}

func summary(given settings, workers []worker, took time.Duration) results {
	all := []time.Duration{}
	found := results{Statuses: map[string]int{}, Seconds: took.Seconds(), CPUSeconds: cpuSeconds()}
	for _, each := range workers {
		all = append(all, each.took...)
		found.Bytes += each.bytes
		for status, count := range each.statuses {
			found.Statuses[status] += count
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	found.Requests = len(all)
	if given.Rate > 0 {
		found.Unsent = int(given.Rate*given.Seconds) - len(all)
	}
	if len(all) > 0 {
		found.P50ms = milliseconds(all[len(all)/2])
		found.P99ms = milliseconds(all[len(all)*99/100])
		found.MaxMs = milliseconds(all[len(all)-1])
	}
	return found
}

func request(given settings, path string) []byte {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, given.Address)
	for _, header := range given.Headers {
		text += fmt.Sprintf("%s: %s\r\n", header[0], header[1])
	}
	return []byte(text + "\r\n")
}

func dial(address string, config *tls.Config) net.Conn {
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		fail(err)
	}
	return connection
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func milliseconds(each time.Duration) float64 {
	return float64(each) / float64(time.Millisecond)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
