package remark

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

func TestTaken(t *testing.T) {
	row := &client.Session{Driver: "oci", Runtime: "runc", Network: client.Network{Mode: client.NetworkRules}}
	ports := []uint16{8080, 80, 443, 18080}
	for text, want := range map[string]bool{
		"Error: listen EADDRINUSE: address already in use :::8080":             true,
		"OSError: [Errno 98] Address already in use":                           true,
		"[Errno 48] error while attempting to bind on address: address in use": true,
		"Error: Port 3000 is already in use":                                   true,
		"Port 8080 is in use, trying another one...":                           true,
		"Bind for 0.0.0.0:80 failed: port 80 is already allocated":             true,
		"the address is in the book":                                           false,
		"":                                                                     false,
	} {
		got := Taken(row, ports, "", text)
		if (got != "") != want || want && !strings.Contains(got, "on ports 80, 443, 8080 and 18080: the rules of the network take them. Use another port, such as 18081)") {
			t.Errorf("%s: %q", text, got)
		}
		for _, other := range []client.Session{{Network: client.Network{Mode: client.NetworkNone}}, {Runtime: "runsc", Network: row.Network}} {
			if got := Taken(&other, ports, text); got != "" {
				t.Errorf("%+v: %s", other.Network, got)
			}
		}
	}
	if got := PortWords(row, nil) + PortWords(row, ports[:1]); got != "port 8080" {
		t.Errorf("%q", got)
	}
}
