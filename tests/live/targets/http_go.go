// HTTP of Go for the tests: `http_go serve PORT LOG` and `http_go call PORT PLAN`.
//
// serve: GET /items 200, POST /items 201, /missing 404, /broken 503; LOG gets `METHOD PATH STATUS` for each request before its
// response is sent. call: PLAN is a JSON list of {close, requests: [[method, path, body size], ...]}, each a connection of its
// own, all at once; the same triples go to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func serve(port string, file string) {
	out, err := os.Create(file)
	must(err)
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		must(err)
		status := 200
		switch {
		case strings.HasPrefix(r.URL.Path, "/missing/"):
			status = 404
		case strings.HasPrefix(r.URL.Path, "/broken/"):
			status = 503
		case r.Method == "POST":
			status = 201
		}
		fmt.Fprintf(out, "%s %s %d\n", r.Method, r.URL.Path, status)
		w.WriteHeader(status)
		fmt.Fprintf(w, "%s %s\n", r.Method, r.URL.Path)
	}
	must(http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(handler)))
}

type plan struct {
	Close    bool
	Requests [][]any
}

func call(port string, each plan) {
	transport := &http.Transport{DisableKeepAlives: each.Close, MaxConnsPerHost: 1}
	client := http.Client{Transport: transport}
	for _, request := range each.Requests {
		method, path := request[0].(string), request[1].(string)
		var body io.Reader
		if request[2] != nil {
			body = strings.NewReader(strings.Repeat("x", int(request[2].(float64))))
		}
		made, err := http.NewRequest(method, "http://127.0.0.1:"+port+path, body)
		must(err)
		response, err := client.Do(made)
		must(err)
		_, err = io.Copy(io.Discard, response.Body)
		must(err)
		response.Body.Close()
		fmt.Printf("%s %s %d\n", method, path, response.StatusCode)
	}
	transport.CloseIdleConnections()
}

func main() {
	time.AfterFunc(time.Minute, func() { os.Exit(9) })
	if os.Args[1] == "serve" {
		serve(os.Args[2], os.Args[3])
	}
	text, err := os.ReadFile(os.Args[3])
	must(err)
	var plans []plan
	must(json.Unmarshal(text, &plans))
	var all sync.WaitGroup
	for _, each := range plans {
		all.Add(1)
		go func(each plan) {
			defer all.Done()
			call(os.Args[2], each)
		}(each)
	}
	all.Wait()
}
