package policy

import "testing"

func TestSmoke(t *testing.T) {
	s, err := Parse("c.toml", []byte(`
[permission]
"*" = "allow"
[permission.bash]
"*" = "ask"
"git *" = "allow"
"git push *" = { action = "deny", reason = "merge queue" }
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Profiles() {
		st, err := s.Stack(p, "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []Request{{Permission: "bash", Pattern: "git"}, {Permission: "bash", Pattern: "git push"}, {Permission: "bash", Pattern: "gitx"}, {Permission: "edit", Pattern: "x"}} {
			t.Logf("%s %+v: %+v", p, q, st.Judge([]Request{q}))
		}
	}
}
