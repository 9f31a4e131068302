package builtin

import (
	"maps"
	"testing"
)

// TestOnHost: variables go before defaults, and what is not there is left out.
func TestOnHost(t *testing.T) {
	c, ok := Find("go")
	if !ok {
		t.Fatal("there is no cache go")
	}
	env := map[string]string{"HOME": "/home/u", "GOPATH": "/gopath", "GOCACHE": "off"}
	there := map[string]bool{"/home/u/.cache/go-build": true, "/gopath/pkg/mod": true, "/home/u/go/pkg/mod": true}
	got := c.OnHost(func(k string) string { return env[k] }, func(p string) bool { return there[p] })
	if want := map[string]string{"build": "/home/u/.cache/go-build", "mod": "/gopath/pkg/mod"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := c.OnHost(func(string) string { return "" }, func(string) bool { return true }); len(got) > 0 {
		t.Errorf("without a home directory: %v", got)
	}
}

// TestEnviron: every cache has a variable that leads to each place that it is in, and none
// takes a home with secrets from a host.
func TestEnviron(t *testing.T) {
	for _, name := range Names() {
		c, _ := Find(name)
		if len(c.Environ()) == 0 {
			t.Errorf("%s: no variables", name)
		}
		if (name == "cargo" || name == "gradle") && len(c.Dirs[0].Host) > 0 {
			t.Errorf("%s is taken from a home with secrets", name)
		}
	}
	c, _ := Find("go")
	if got := c.Environ()["GOMODCACHE"]; got != "/caches/go/mod" {
		t.Errorf("GOMODCACHE=%s", got)
	}
}
