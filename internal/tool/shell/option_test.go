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
		`docker "-H$X" run a`:                        {"docker run a", "docker a"},
		`npm "--registry$X" publish p`:               {"npm publish p", "npm p"},
		`docker "-l${X#=}" info run a`:               {"docker info run a", "docker run a"},
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
		if first, _, _ := strings.Cut(beginning, " "); arities[first] == 0 {
			t.Errorf("%s has a kind, and %s by itself has none", beginning, first)
		}
	}
	for _, option := range []string{"-x y ", "-x ", "--a -b c "} {
		if r := Scan("docker "+strings.Repeat(option, 5000)+"run a", Options{}); !r.Opaque {
			t.Errorf("%s, 5000 times: not opaque, and the readings are %.200q", option, r.Commands[0].Also)
		}
	}
}

// TestLooseKinds: a value that may be several words, or a word that is not known, before the last word
// of a command's kind makes the kind unknown. One word that is a value does not.
func TestLooseKinds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"docker -H $X run a", "docker -H $X ps", "docker --host=$X ps", "docker -H$X ps", "docker -H h $X a", `docker -H h "$X" a`, "docker -D $X ps", "docker $X ps",
		`docker "$@" ps`, "docker -H $(cat f) ps", "docker -H `cat f` ps", "docker -H ${X:-a} ps", "docker -H * ps", "docker -H {a,b} ps", "docker compose -f $X ps",
		"docker compose -f f $X", "git -C $X status", "git -c $X status", "git --git-dir=$X status", "git -C$X status", "git -C d $X", `git -C d "$X"`, "git -C d stash $X",
		"git -p $X", "git --new $X status", "kubectl --context $X get pods", "kubectl -n $NS get pods", "npm --prefix $X run a", "npm --prefix d run $X", "npm run -s $X",
		"gh -R $X pr list", "gh pr -R $X list", "cargo --config $X build", "pip --log $X install a", "env docker -H $X ps", "sh -c 'docker -H $X ps'", "/usr/bin/docker -H $X ps",
		"aws --profile $P s3 ls", "gcloud --project $P run deploy", "docker -H h$X ps", `docker -H "$X"$Y ps`, "terraform -chdir=$D plan", "helm --kube-context $X list", "go -C $D test",
	} {
		if r := Scan(text, Options{Home: "/w"}); !r.Opaque {
			t.Errorf("%s is not opaque: %v", text, r.Commands)
		}
	}
	for _, text := range []string{
		`docker -H "$X" ps`, `git -C "$X" status`, `git -C "$X" add $Y`, `kubectl --context "$X" get $Y`, `kubectl get pods -n $X`, `npm --prefix "$X" run a`, `git -C d log $X`,
		"git log $X", "docker run $X", `docker compose -f "$X" up $Y`, "ls -l $X", `gh -R "$X" pr list $Y`, "git -C d stash", "docker -H h ps *",
	} {
		if r := Scan(text, Options{Home: "/w"}); r.Opaque {
			t.Errorf("%s is opaque: %s", text, r.Why)
		}
	}
}

// TestGitOptionsOfUnknownValue: an option of git's that goes on with a value may have all of it in one word,
// or the next word as its value.
func TestGitOptionsOfUnknownValue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`git "--git-dir$X" push origin main`, `git "-C$X" push origin main`, `git "--work-tree${X#=}" push origin main`} {
		var got []string
		for _, c := range Scan(text, Options{Home: "/home/tool"}).Commands {
			got = append(got, c.Text)
		}
		if !slices.Contains(got, "git push origin main") || !slices.Contains(got, "git origin main") {
			t.Errorf("%s: readings %q", text, got)
		}
	}
}
