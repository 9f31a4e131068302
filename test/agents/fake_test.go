package agents

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fakeAgent is an agent that is configured as OpenCode is. What is wrong with it is its mode; in
// its directory, TOOLD_TEST_FAKE_DIR, it leaves its home and the ids of its processes.
func fakeAgent(mode string) int {
	child := exec.Command("setsid", "sleep", "1000") // no group of processes has both
	home, dir := os.Getenv("HOME"), os.Getenv("TOOLD_TEST_FAKE_DIR")
	if err := child.Start(); err != nil {
		return 1
	}
	_ = os.WriteFile(filepath.Join(dir, "processes"), fmt.Append(nil, os.Getpid(), " ", child.Process.Pid), 0o600)
	_ = os.WriteFile(filepath.Join(dir, "home"), []byte(home), 0o600)
	switch mode {
	case "exits":
		fmt.Println("there is no licence")
		return 3
	case "hangs":
		hang(dir)
	}
	f := &faulty{mode: mode, dir: dir}
	if err := f.work(home); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// hang says that it does, and does.
func hang(dir string) {
	_ = os.WriteFile(filepath.Join(dir, "hangs"), nil, 0o600)
	for { // the runtime may take select {} for a deadlock, and end it
		time.Sleep(time.Hour)
	}
}

// faulty is an agent with a fault.
type faulty struct {
	mode, dir string
	url       string
	server    *mcp.ClientSession
	tools     []in
	messages  []in
}

func (f *faulty) work(home string) error {
	var config struct {
		Provider struct {
			Scripted struct{ Options struct{ BaseURL string } }
		}
		MCP struct{ Toold struct{ Command []string } }
	}
	text, err := os.ReadFile(filepath.Join(home, "opencode.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return err
	}
	f.url = config.Provider.Scripted.Options.BaseURL + "/chat/completions"
	f.tools = []in{{"type": "function", "function": in{"name": "shell", "parameters": in{}}}}
	if f.mode != "alone" {
		if err := f.connect(config.MCP.Toold.Command); err != nil {
			return err
		}
		defer f.server.Close()
	}
	if f.mode == "offers nothing" {
		f.tools = nil
	}
	for n := 0; ; n++ {
		if f.mode == "hangs in a call" && n == 2 {
			hang(f.dir)
		}
		id, name, args, err := f.ask()
		if err != nil || name == "" || f.mode == "stops" && n == 2 {
			return err
		}
		result, err := f.server.CallTool(context.Background(), &mcp.CallToolParams{Name: strings.TrimPrefix(name, "toold_"), Arguments: json.RawMessage(args)})
		if err != nil {
			return err
		}
		f.messages = append(f.messages, f.told(id, result)...)
	}
}

func (f *faulty) connect(argv []string) (err error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
	if f.server, err = c.Connect(context.Background(), &mcp.CommandTransport{Command: exec.Command(argv[0], argv[1:]...)}, nil); err != nil {
		return err
	}
	list, err := f.server.ListTools(context.Background(), nil)
	if err != nil {
		return err
	}
	for _, tool := range list.Tools {
		if f.mode != "leaves out" || tool.Name != "edit" {
			f.tools = append(f.tools, in{"type": "function", "function": in{"name": "toold_" + tool.Name, "parameters": tool.InputSchema}})
		}
	}
	if f.mode != "uninstructed" {
		f.messages = []in{{"role": "system", "content": f.server.InitializeResult().Instructions}}
	}
	return nil
}

// ask asks the model, and gives the call that it wants; name is "" for none.
func (f *faulty) ask() (id, name, args string, err error) {
	body, _ := json.Marshal(in{"model": "m", "tools": f.tools, "messages": f.messages})
	r, err := http.Post(f.url, "application/json", bytes.NewReader(body))
	if err != nil {
		return "", "", "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	one := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			return ""
		}
		var s string
		_ = json.Unmarshal(m[1], &s) // of a JSON text
		return s
	}
	return one(`"id":("c\d+")`), one(`"name":("\w+")`), one(`"arguments":("(?:[^"\\]|\\.)*")`), err
}

// told is what the model is told of a result.
func (f *faulty) told(id string, r *mcp.CallToolResult) (messages []in) {
	said := text(r)
	switch f.mode {
	case "escapes":
		b, _ := json.Marshal(said)
		said = string(b)
	case "twice":
		said += "\n" + said
	case "cuts":
		if len(said) > 20_000 {
			said = said[:5000] + "\n[...]\n" + said[len(said)-1000:]
		}
	case "changes":
		said = "ok"
	}
	content := []in{{"type": "text", "text": said}}
	for _, c := range r.Content {
		if c, ok := c.(*mcp.ImageContent); ok && f.mode != "blind" {
			data := c.Data
			if f.mode == "redraws" {
				var b bytes.Buffer
				_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2))) // into memory
				data = b.Bytes()
			}
			content = append(content, in{"type": "image_url", "image_url": in{"url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)}})
		}
	}
	return []in{{"role": "tool", "tool_call_id": id, "content": content}}
}
