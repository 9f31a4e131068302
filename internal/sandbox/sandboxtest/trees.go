package sandboxtest

import (
	"bytes"
	"fmt"
	"io"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
)

// testTrees: a tree goes out of a sandbox and into it again as it was.
func testTrees(s *suite) {
	b := s.create(s.spec())
	b.out(`mkdir -p src/sub/deep src/empty src/closed && cd src && echo deep >sub/deep/f && echo run >exec && chmod 751 exec &&
		ln -s ../../etc/passwd link && ln -s sub dirlink && printf x >"$(printf 'new\nline')" && printf x >"$(printf '\377\376')" &&
		head -c 700000 /dev/urandom >random && chmod 500 closed && for i in $(seq 300); do echo $i >sub/$i; done`)
	out := &sink{}
	job := run.PackJob("src", 1<<30)
	if r := b.call(agent.Request{Tool: job.Tool, Input: job.Input}, out); r.IsError {
		s.Fatal(r.Output)
	}
	job = run.UnpackJob("back", 1<<30)
	if r := b.call(agent.Request{Tool: job.Tool, Input: job.Input, Body: io.NopCloser(bytes.NewReader(out.bytes))}, nil); r.IsError {
		s.Fatal(r.Output)
	}
	b.out("diff -r --no-dereference src back")
	picture := `cd %s && find . -printf "%%m %%y %%P %%l\n" | LC_ALL=C sort`
	if got, want := b.out(fmt.Sprintf(picture, "back")), b.out(fmt.Sprintf(picture, "src")); got != want {
		s.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
