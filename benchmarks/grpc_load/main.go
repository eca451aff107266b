// The load of benchmarks/serving_grpc.py: connections that each ask again as soon as they are answered.
//
//	grpc_load grpc|http ADDRESS PATH CONNECTIONS SECONDS < body
//
// prints {"requests", "failed", "seconds", "p50_ms", "p99_ms"}. A gRPC connection carries one call at a time, an HTTP
// connection one request; what is sent over HTTP is read from stdin as it goes over the wire.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

type asker func() error

func overGrpc(address, path string, body []byte) (asker, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return nil, err
	}
	return func() error {
		var answer []byte
		return connection.Invoke(context.Background(), path, &body, &answer)
	}, nil
}

func overHttp(address string, body []byte) (asker, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(connection)
	return func() error {
		if _, err := connection.Write(body); err != nil {
			return err
		}
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode != 200 {
			return fmt.Errorf("status %d", answer.StatusCode)
		}
		return nil
	}, nil
}

func main() {
	kind, address, path := os.Args[1], os.Args[2], os.Args[3]
	connections, _ := strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	var group sync.WaitGroup
	took := make([][]float64, connections)
	failed := make([]int, connections)
	began := time.Now()
	ends := began.Add(time.Duration(seconds * float64(time.Second)))
	for each := range connections {
		var ask asker
		if kind == "grpc" {
			ask, err = overGrpc(address, path, body)
		} else {
			ask, err = overHttp(address, body)
		}
		if err != nil {
			panic(err)
		}
		group.Go(func() {
			for time.Now().Before(ends) {
				start := time.Now()
				if problem := ask(); problem != nil {
					if failed[each] == 0 && each == 0 {
						fmt.Fprintln(os.Stderr, problem)
					}
					failed[each]++
					if failed[each] > 100 {
						return
					}
					continue
				}
				took[each] = append(took[each], time.Since(start).Seconds())
			}
		})
	}
	group.Wait()
	all := []float64{}
	wrong := 0
	for each := range took {
		all = append(all, took[each]...)
		wrong += failed[each]
	}
	sort.Float64s(all)
	found := map[string]any{"requests": len(all), "failed": wrong, "seconds": time.Since(began).Seconds()}
	if len(all) > 0 {
		found["p50_ms"] = 1000 * all[len(all)/2]
		found["p99_ms"] = 1000 * all[len(all)*99/100]
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}
