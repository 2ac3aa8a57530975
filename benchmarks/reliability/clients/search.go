// POSTs with Go's own client as it comes: URL KEY BODY COUNT.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	count, _ := strconv.Atoi(os.Args[4])
	answered := 0
	for asked := 0; asked < count; asked++ {
		request, err := http.NewRequest("POST", os.Args[1], strings.NewReader(os.Args[3]))
		if err != nil {
			panic(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-API-Key", os.Args[2])
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err == nil && reply.StatusCode == 200 && strings.Contains(string(body), "\"query_id\"") {
			answered++
		}
	}
	fmt.Println(answered)
}
