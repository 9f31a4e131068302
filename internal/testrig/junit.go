package testrig

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// junitElement is what the common schema of JUnit files says of an element, as far as both
// Jenkins and GitLab read it.
type junitElement struct {
	in    string            // the element around it
	must  []string          // attributes that must be there
	attrs map[string]string // all, with their kind
	once  bool              // not twice in one
}

var junitElements = map[string]junitElement{
	"testsuites": {attrs: map[string]string{"name": "", "tests": "count", "failures": "count", "errors": "count", "time": "seconds"}},
	"testsuite": {in: "testsuites", must: []string{"name", "tests", "failures", "errors"}, attrs: map[string]string{
		"name": "", "tests": "count", "failures": "count", "errors": "count", "skipped": "count", "time": "seconds", "timestamp": "time",
	}},
	"testcase":   {in: "testsuite", must: []string{"classname", "name", "time"}, attrs: map[string]string{"classname": "", "name": "", "time": "seconds"}},
	"failure":    {in: "testcase", once: true, must: []string{"type"}, attrs: map[string]string{"message": "", "type": ""}},
	"error":      {in: "testcase", once: true, must: []string{"type"}, attrs: map[string]string{"message": "", "type": ""}},
	"system-out": {in: "testcase", once: true},
}

var junitKinds = map[string]*regexp.Regexp{
	"":        regexp.MustCompile(`(?s).*`),
	"count":   regexp.MustCompile(`^\d+$`),
	"seconds": regexp.MustCompile(`^\d+\.\d+$`),
	"time":    regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`),
}

// CheckJUnit checks a document against the common schema of JUnit files: elements, attributes
// and what they hold, that cases can be told apart, and that the counts are those of the
// cases. It gives the number of cases.
func CheckJUnit(doc []byte) (cases int, err error) {
	c := junitCheck{names: make(map[string]bool), count: make(map[string]int)}
	dec := xml.NewDecoder(bytes.NewReader(doc))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return c.count["tests"], c.counted()
		}
		if err != nil {
			return 0, err
		}
		switch e := tok.(type) {
		case xml.StartElement:
			if err := c.begin(&e); err != nil {
				return 0, fmt.Errorf("<%s>: %w", e.Name.Local, err)
			}
		case xml.EndElement:
			c.at = c.at[:len(c.at)-1]
		case xml.CharData:
			if in := c.in(); in != "failure" && in != "error" && in != "system-out" && strings.TrimSpace(string(e)) != "" {
				return 0, fmt.Errorf("text in <%s>", in)
			}
		}
	}
}

// junitCheck is how far CheckJUnit is.
type junitCheck struct {
	at    []string
	seen  []string // in this case
	names map[string]bool
	said  []xml.StartElement // those that count
	count map[string]int
}

func (c *junitCheck) in() string {
	if len(c.at) == 0 {
		return ""
	}
	return c.at[len(c.at)-1]
}

func (c *junitCheck) begin(e *xml.StartElement) error {
	name := e.Name.Local
	rule, ok := junitElements[name]
	if !ok || rule.in != c.in() {
		return fmt.Errorf("in <%s>", c.in())
	}
	if rule.once && slices.Contains(c.seen, name) {
		return errors.New("twice")
	}
	c.seen = append(c.seen, name)
	var key []string
	var have []string
	for _, a := range e.Attr {
		kind, ok := rule.attrs[a.Name.Local]
		if !ok || !junitKinds[kind].MatchString(a.Value) {
			return fmt.Errorf("%s=%q", a.Name.Local, a.Value)
		}
		have = append(have, a.Name.Local)
		if kind == "" {
			key = append(key, a.Value)
		}
	}
	for _, must := range rule.must {
		if !slices.Contains(have, must) {
			return fmt.Errorf("no %s", must)
		}
	}
	c.at = append(c.at, name)
	switch name {
	case "testsuites", "testsuite":
		c.said = append(c.said, e.Copy())
	case "testcase":
		c.seen = nil
		c.count["tests"]++
		if id := strings.Join(key, "\x00"); c.names[id] {
			return fmt.Errorf("a second %q", key)
		} else {
			c.names[id] = true
		}
	case "failure", "error":
		c.count[name+"s"]++
	}
	return nil
}

// counted compares what is counted with what is said.
func (c *junitCheck) counted() error {
	if len(c.said) != 2 {
		return fmt.Errorf("%d suites", len(c.said))
	}
	for _, e := range c.said {
		for _, a := range e.Attr {
			if n, err := strconv.Atoi(a.Value); junitElements[e.Name.Local].attrs[a.Name.Local] == "count" && (err != nil || n != c.count[a.Name.Local]) {
				return fmt.Errorf("<%s %s=%q>, and there are %d", e.Name.Local, a.Name.Local, a.Value, c.count[a.Name.Local])
			}
		}
	}
	return nil
}
