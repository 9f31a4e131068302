package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestOptionsBeforeTheKind: options before or among the words of a command's kind do not hide it
// from a rule that denies it; values of options that are known are not taken for it.
func TestOptionsBeforeTheKind(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"npm --registry https://r.example publish":   {"npm publish"},
		"npm --registry=https://r.example publish x": {"npm publish x"},
		"npm --new x publish":                        {"npm x publish", "npm publish"},
		"npm run --silent deploy":                    {"npm run deploy", "npm run"},
		"docker --context x run -it a":               {"docker run -it a"},
		"docker -D --tls -H y run a":                 {"docker run a"},
		"docker compose -f x.yml up -d":              {"docker compose up -d"},
		"kubectl -n delete get pods":                 {"kubectl get pods"},
		"kubectl --context 'a b' delete pods":        {"kubectl delete pods"},
		"gh -R a/b pr merge 1":                       {"gh pr merge 1"},
		"gh pr -R a/b merge 1":                       {"gh pr merge 1"},
		"/usr/bin/docker --context x run a >f":       {"docker run a >f"},
		"kubectl get pods -n x":                      nil,
		"npm publish --tag x":                        nil,
		"ls -l x":                                    nil,
		"env docker --context x run a":               {"docker run a"},
		"sh -c 'docker --context x run a'":           {"docker run a"},
	} {
		r := Scan(text, Options{Home: "/home/tool"})
		var got []string
		for _, c := range r.Commands {
			if c.Also != "" {
				got = append(got, strings.Split(c.Also, "\x00")...)
			}
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: no reading %q among %q", text, w, got)
			}
		}
		if len(want) == 0 && got != nil || len(want) == 1 && text != "docker -D --tls -H y run a" && len(slices.Compact(got)) != 1 {
			t.Errorf("%s: readings %q, want %q", text, got, want)
		}
	}
	for beginning, n := range arities {
		if n > 3 {
			t.Errorf("%s has a kind of %d words, and readings are made of three", beginning, n)
		}
	}
	for _, option := range []string{"-x y ", "-x ", "--a -b c "} {
		if r := Scan("docker "+strings.Repeat(option, 5000)+"run a", Options{}); !r.Opaque {
			t.Errorf("%s, 5000 times: not opaque, and the readings are %.200q", option, r.Commands[0].Also)
		}
	}
}
