// Clients that keep their connection and never retry: CLIENTS ADDRESS… until stdin closes; then one line of JSON.
//
// A new connection goes to the first address that accepts one. A request that was sent and not answered is lost.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type outcome struct {
	Answered int      `json:"answered"`
	Refused  int      `json:"refused"`
	Unready  int      `json:"unready"`
	Other    []int    `json:"other"`
	Lost     []string `json:"lost"`
}

var (
	total   = outcome{Lost: []string{}, Other: []int{}}
	guarded sync.Mutex
)

func dial(addresses []string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (connection net.Conn, err error) {
		for _, address := range addresses {
			connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				break
			}
		}
		return
	}
}

func ask(client *http.Client, number int) (int, error) {
	body := fmt.Sprintf(`{"query":"What does permit %d cost?"}`, number)
	request, err := http.NewRequest("POST", "http://127.0.0.1/search", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.GetBody = nil // else Go itself sends the body again
	request.Header.Set("Content-Type", "application/json")
	reply, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	_, err = io.ReadAll(reply.Body)
	return reply.StatusCode, err
}

func count(status int, err error) {
	guarded.Lock()
	defer guarded.Unlock()
	switch {
	case err != nil && strings.Contains(err.Error(), "dial tcp"):
		total.Refused++
	case err != nil:
		total.Lost = append(total.Lost, err.Error())
	case status == 200:
		total.Answered++
	case status == 503:
		total.Unready++
	default:
		total.Other = append(total.Other, status)
	}
}

func main() {
	clients, _ := strconv.Atoi(os.Args[1])
	addresses := os.Args[2:]
	stop := make(chan struct{})
	var running sync.WaitGroup
	for number := 0; number < clients; number++ {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			first := number % len(addresses)
			order := append(append([]string{}, addresses[first:]...), addresses[:first]...)
			client := &http.Client{Transport: &http.Transport{DialContext: dial(order)}, Timeout: 60 * time.Second}
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.ExpFloat64() * 50 * float64(time.Millisecond))):
					count(ask(client, rand.Intn(1000)))
				}
			}
		}(number)
	}
	io.ReadAll(os.Stdin)
	close(stop)
	running.Wait()
	json.NewEncoder(os.Stdout).Encode(total)
}
