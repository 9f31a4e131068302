package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// junitSuites is junit.xml: one suite, and a case for each call. encoding/xml replaces what
// XML forbids, so that no output makes another document of it.
type junitSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Time     string     `xml:"time,attr"` // seconds, as all times here
	Suite    junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

// junitCase is a call: a failure is a tool that ran and failed, an error one that did not
// run or did not end. Readers know a case by its two names from one job to the next.
type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Failure *junitReason `xml:"failure"`
	Error   *junitReason `xml:"error"`
	Output  string       `xml:"system-out,omitempty"`

	millis int64
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// maxCaseOutput is how much of the end of an output a case has, in bytes.
const maxCaseOutput = 16 << 10

func (p *ciReport) caseOf(c *client.Call, x *resultCall) junitCase {
	k := junitCase{Class: "toolctl." + c.Tool, Name: x.Input, millis: c.Usage.DurationMillis}
	p.tellApart(&k)
	text := lastText(c.Printed(), maxCaseOutput)
	switch {
	case c.Error != nil:
		k.Error = &junitReason{c.Error.Message, string(c.Error.Code), text}
	case !c.Finished():
		k.Error = &junitReason{"it had not ended", string(c.Status), text}
	case c.IsError || endingOf(c).code > 0:
		k.Failure = &junitReason{failureOf(c), "failed", text}
	default:
		k.Output = text
	}
	return k
}

// tellApart gives a case that has the two names of another one a name of its own.
func (p *ciReport) tellApart(k *junitCase) {
	name, first := k.Name, k.key()
	for n := p.names[first] + 1; p.names[k.key()] > 0; n++ {
		k.Name = fmt.Sprintf("%s (%d)", name, n)
		p.names[first] = n
	}
	p.names[k.key()]++
}

// key is the two names as the document has them, where all that XML forbids is the same.
func (k *junitCase) key() string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(k.Class)) // a strings.Builder takes everything
	b.WriteByte('"')                        // which stands in neither
	_ = xml.EscapeText(&b, []byte(k.Name))
	return b.String()
}

// failureOf says how a command failed, on one line.
func failureOf(c *client.Call) string {
	e, said := endingOf(c), remarks(c)
	switch {
	case e.reason == "exit":
		return "exit code " + strconv.Itoa(e.code)
	case e.reason != "" && len(said) > 0:
		return line(said[0])
	case e.reason != "":
		return e.reason
	}
	return "the tool says that it failed"
}

// lastText is the end of a text in at most so many bytes, in whole characters.
func lastText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "…" + plain.FromRune(s[len(s)-most:])
}

// neverRan is the case of a command of which there is no call.
func neverRan(command string, r *jobResult) junitCase {
	k := junitCase{Class: "toolctl.run", Name: clipped(line(command), maxInputShort), Error: &junitReason{Message: r.Reason, Type: r.Reason}}
	if r.Error != nil {
		k.Error.Message = r.Error.Message
	}
	return k
}

func writeJUnit(w io.Writer, cases []junitCase, started time.Time) error {
	s := junitSuite{Name: "toolctl run", Tests: len(cases), Timestamp: started.Format("2006-01-02T15:04:05"), Cases: cases}
	var millis int64
	for i := range cases {
		k := &cases[i]
		if k.Failure != nil {
			s.Failures++
		}
		if k.Error != nil {
			s.Errors++
		}
		k.Time = junitTime(k.millis)
		millis += k.millis
	}
	s.Time = junitTime(millis)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	err := enc.Encode(junitSuites{Name: s.Name, Tests: s.Tests, Failures: s.Failures, Errors: s.Errors, Time: s.Time, Suite: s})
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

func junitTime(millis int64) string {
	return strconv.FormatFloat(float64(max(0, millis))/1000, 'f', 3, 64)
}
