package config

import (
	"os"
	"regexp"
	"testing"
)

// TestNetworkRecipes reads each block of docs/network.md, whose [[test]]s must pass.
func TestNetworkRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?m)^<!-- internal/config/network_test.go: ([a-z ]+) -->\n```toml\n((?s:.*?))^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, b := range blocks {
		c, err := Parse(b[1], []byte(b[2]))
		if err != nil {
			t.Errorf("%s: %v", b[1], err)
			continue
		}
		if n := c.Policy.Tests(); n < 2 {
			t.Errorf("%s has %d tests", b[1], n)
		}
		for _, w := range c.Policy.Warnings() {
			t.Errorf("%s: %v", b[1], w)
		}
	}
}
