package sandboxtest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// testDeep has tools work in and below directories whose paths are longer than the kernel takes,
// to which links lead, and a command that goes there by itself. Each call answers: what names
// such a place is refused.
func testDeep(s *suite) {
	b := s.create(s.spec())
	b.out(`way=$(printf "$(printf %0200d 0)/%.0s" 1 2 3 4 5 6 7 8 9 10)
		mkdir -p a/$way b/$way c/$way; echo text >c/$way/file
		ln -s a/$way way; ln -s b/$way a/$way/way; ln -s c/$way b/$way/way
		mv c b/$way/c; mv b a/$way/b`)
	long := strings.Repeat(fmt.Sprintf("%0200d/", 0), 25)
	for _, tool := range []struct{ name, input string }{
		{"bash", `{"command":"ls","workdir":%q}`},
		{"read", `{"file_path":%q}`},
		{"list", `{"path":%q}`},
		{"glob", `{"pattern":"**","path":%q}`},
		{"grep", `{"pattern":"text","path":%q}`},
		{"write", `{"file_path":"%[1]s/new","content":"x"}`},
	} {
		for dir, code := range map[string]run.Code{"way/way": "", "way/way/way": run.CodeInvalidPath, long: run.CodeInvalidPath} {
			x := b.start(b.named(agent.Request{Tool: tool.name, Input: json.RawMessage(fmt.Sprintf(tool.input, dir))}), nil)
			<-x.done
			testrig.Must(s, x.err)
			if x.out.Err == nil && code != "" || x.out.Err != nil && x.out.Err.Code != code {
				s.Errorf("%s in %.20s: %v, want %q", tool.name, dir, x.out.Err, code)
			}
			testrig.Must(s, b.conn.Forget(x.id))
		}
	}
	b.want("cd way/way/way && cat file", "text")
	b.want("cd way/way/way && { sleep 1000 & } && cat file", "text")
}
