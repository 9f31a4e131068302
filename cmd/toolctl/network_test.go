package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func TestNetworkLog(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	records := []client.NetworkRecord{
		{Permission: "network", To: "api.example.com:443", Verdict: "allow", Rule: `config.toml:6 (network "*")`, Exact: true, Calls: []string{"call_1"}, Up: 10, Down: 2048, DurationMillis: 1500},
		{Permission: "network", To: "evil\x1b:443", Verdict: "deny", Rule: "default", Reason: "no line"},
		{Permission: "network", To: "gone.example:443", Verdict: "allow", Rule: "default", Error: "there is no such host", LeftOut: 3},
	}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("type") != "network.*" || q.Get("session") != fakeSession {
			t.Errorf("asked %v", q)
		}
		for i, rec := range records {
			data, _ := json.Marshal(rec)
			e := client.Event{ID: "evt_1", Type: "network.allowed", Time: at, Data: data}
			if i < 2 {
				e.Call = "call_1"
			}
			sendEvent(w, e.Type, e)
		}
		sendEvent(w, client.EventEnd, client.Event{Type: client.EventEnd})
	}})
	want := `03:04:05.000  call_1  allow   api.example.com:443  up 10B  down 2.0KiB  1.5s  by config.toml:6 (network "*")
03:04:05.000  call_1?  deny    evil\x1b:443  by default: no line
03:04:05.000  -        failed  gone.example:443  by default: there is no such host
(3 connections before this one came too fast to be kept)
`
	if r := d.ctl("network", "log", fakeSession); r.stdout != want || r.code != 0 {
		t.Errorf("exit %d\ngot\n%s\nwant\n%s", r.code, r.stdout, want)
	}
}

func TestNetworkLearn(t *testing.T) {
	n := client.SessionNetwork{Mode: client.NetworkRules, LeftOut: 2, Hosts: []client.NetworkHost{
		{Permission: "network", To: "registry.example:443", Verdict: "allow"},
		{Permission: "network", To: "registry.example:80", Verdict: "allow"},
		{Permission: "network", To: "git.example:22", Verdict: "allow"},
		{Permission: "network", To: "[2001:db8::1]:8443", Verdict: "allow"},
		{Permission: "network", To: "evil.example:443", Verdict: "deny"},
		{Permission: "http", To: "GET http://registry.example", Verdict: "allow"},
	}}
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}/network": answerWith(n)})
	want := `[permission.network]
"*" = "deny"
"[2001:db8::1]:8443" = "allow"
"git.example:22" = "allow"
"registry.example" = "allow"
`
	d.ctl("network", "learn", fakeSession).want(t, 0, want, "2 connections were not recorded")
	d.ctl("network", "learn", fakeSession, "-o", "name").want(t, 0, "git.example:22\nregistry.example\n", "")
	none := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions/{id}/network": answerWith(client.SessionNetwork{Mode: "none"})})
	none.ctl("network", "learn", fakeSession).want(t, 0, "reached nothing", "make one with --net rules")
}
