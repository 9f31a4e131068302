package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/client"
)

// watch is the state of "approvals watch" on a terminal: which approvals wait,
// and what the next key means. But for run, it gives text to print and says what is to
// be done. It prints from top to bottom and never over what
// it has printed, so that what was approved stays on the screen.
type watch struct {
	width, height int
	color         bool
	scope         client.Scope // of always
	own           bool         // there is one approval, of a call of our own

	queue   []client.Approval // those that wait; the first one is on the screen
	skipped map[string]bool
	at      time.Time // when the first one was put on the screen
	undrawn bool      // it is not there yet
	mode    watchMode
	message []byte   // typed so far
	pages   []string // of the full text that have not been shown
}

// watchMode is what a key means.
type watchMode int

const (
	watchDeciding watchMode = iota // an answer
	watchTyping                    // a character of the message of a rejection
	watchReading                   // the next page
)

// settle is how long an approval must have been on the screen before a key
// answers it: a key that was meant for the one before must not.
const settle = 400 * time.Millisecond

// maxMessage bounds the message of a rejection, in bytes.
const maxMessage = 2000

// deed is what a key asks for.
type deed struct {
	answer *client.ApprovalAnswer // to the first of the queue
	full   bool                   // show the whole input of the first of the queue
	quit   bool
}

func newWatch(width, height int, color bool, scope client.Scope) *watch {
	return &watch{width: width, height: height, color: color, scope: scope, skipped: map[string]bool{}}
}

// run draws first and then lists on a terminal, and has do do what keys ask for, until that
// says that it was the last, the terminal is gone or ctx ends. It gives the terminal back.
func (w *watch) run(ctx context.Context, out io.Writer, keys *keyboard, first approvalList, lists <-chan approvalList, do func(deed) (text string, last bool)) error {
	defer func() {
		fmt.Fprint(out, "\r\x1b[K")
		_ = keys.Close()
	}()
	draw := func(text string) {
		fmt.Fprintf(out, "\r\x1b[K%s%s", text, w.prompt())
		w.drawn(time.Now())
	}
	w.width, w.height = keys.size()
	draw(w.update(first.pending, first.ended, time.Now()))
	for {
		select {
		case l := <-lists:
			if l.err != nil {
				return l.err
			}
			w.width, w.height = keys.size()
			draw(w.update(l.pending, l.ended, time.Now()))
		case k, ok := <-keys.pressed:
			if !ok {
				return nil
			}
			w.width, w.height = keys.size()
			text, asked := w.press(k.text, k.at)
			more, last := do(asked)
			if last {
				return nil
			}
			draw(text + more)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// update takes the approvals that are pending now, and gives what to print. ended
// tells how those ended that are not among them any more, as far as it is known.
func (w *watch) update(pending []client.Approval, ended map[string]client.ApprovalReply, now time.Time) string {
	waits := make(map[string]bool, len(pending))
	for i := range pending {
		waits[pending[i].ID] = true
	}
	for id := range w.skipped {
		if !waits[id] {
			delete(w.skipped, id)
		}
	}
	var text string
	first := w.first()
	if first != nil && !waits[first.ID] {
		text = w.gone(first.ID, ended)
	}
	w.queue = slices.DeleteFunc(w.queue, func(a client.Approval) bool { return !waits[a.ID] })
	for i := range pending {
		known := slices.ContainsFunc(w.queue, func(a client.Approval) bool { return a.ID == pending[i].ID })
		if !known && !w.skipped[pending[i].ID] {
			w.queue = append(w.queue, pending[i])
		}
	}
	if next := w.first(); next != nil && (first == nil || next.ID != first.ID) {
		text += w.show(now)
	}
	return text
}

// first is the approval on the screen, nil for none.
func (w *watch) first() *client.Approval {
	if len(w.queue) == 0 {
		return nil
	}
	a := w.queue[0] // a copy: the queue moves
	return &a
}

// gone says that the one on the screen needs no answer any more.
func (w *watch) gone(id string, ended map[string]client.ApprovalReply) string {
	w.mode, w.message, w.pages = watchDeciding, nil, nil
	how := "is not pending any more"
	if r, ok := ended[id]; ok {
		how = "has ended meanwhile: " + replyText(r)
	}
	return painted(fmt.Sprintf("%s %s", line(id), how), colorGrey, w.color) + "\n"
}

// show puts the first of the queue on the screen.
func (w *watch) show(now time.Time) string {
	a := w.first()
	if a == nil {
		return ""
	}
	w.at, w.undrawn, w.mode, w.message, w.pages = now, true, watchDeciding, nil, nil
	head := wrapLines([]textLine{{approvalHead(a, now), colorCyan}}, w.width-1)
	body := wrapLines(approvalBody(a), w.width-4)
	body, hidden := cutMiddle(body, w.height-5-len(head))
	text := "\n" + joinLines(head, "", w.color) + joinLines(body, "  ", w.color)
	if hidden > 0 || truncated(a) {
		text += painted("  This is not all of it: f shows the whole input.", colorYellow, w.color) + "\n"
	}
	return text + painted("  sha256 "+line(a.SHA256), colorGrey, w.color) + "\n"
}

// drawn says that what the watch gave is on the screen now: whoever draws may have
// been slow.
func (w *watch) drawn(now time.Time) {
	if w.undrawn {
		w.at, w.undrawn = now, false
	}
}

// prompt is the last line on the screen.
func (w *watch) prompt() string {
	a := w.first()
	var text string
	switch {
	case a == nil:
		text = "nothing waits; q quits"
	case w.mode == watchTyping:
		text = "reject, and tell the model (Enter sends, Esc does not): " + line(string(w.message))
		if width(text) >= w.width {
			return "…" + tail(text, w.width-2)
		}
	case w.mode == watchReading:
		text = fmt.Sprintf("space shows more (%s), any other key goes back", plural(len(w.pages), "page"))
	default:
		text = "o once, "
		if w.saves(a) {
			text += "a always (" + string(w.scope) + "), "
		}
		text += "r reject, m with a reason, f full"
		if w.own {
			return clipped(text+"; Ctrl-C aborts the call", w.width-1)
		}
		text += ", s skip, q quit"
		if n := len(w.queue) - 1; n > 0 {
			text += fmt.Sprintf(" (%d more)", n)
		}
	}
	return clipped(text, w.width-1)
}

// press takes what one read of the keyboard gave. What is not a single key (a
// paste, an arrow) is text for a message, and otherwise nothing.
func (w *watch) press(keys string, now time.Time) (text string, do deed) {
	switch w.mode {
	case watchTyping:
		return w.typed(keys)
	case watchReading:
		return w.read(keys), deed{}
	}
	switch a := w.first(); {
	case !w.own && (keys == "q" || keys == "\x04"):
		return "", deed{quit: true}
	case a == nil || utf8.RuneCountInString(keys) != 1:
		return "", deed{}
	case keys == "s" && !w.own:
		return w.skip(now), deed{}
	case keys == "f":
		return "", deed{full: true}
	case keys == "m":
		w.mode = watchTyping
		return "", deed{}
	case now.Sub(w.at) < settle:
		return "", deed{}
	default:
		return w.decide(keys, a)
	}
}

// decide makes an answer of a key. It is bound to what was on the screen.
func (w *watch) decide(key string, a *client.Approval) (string, deed) {
	answer := client.ApprovalAnswer{SHA256: a.SHA256}
	switch key {
	case "o", "y":
		answer.Answer = client.AnswerOnce
	case "r", "n":
		answer.Answer = client.AnswerReject
	case "a":
		switch {
		case !savable(a):
			return "  Nothing of this can be allowed always; o allows it once.\n", deed{}
		case !w.saves(a):
			return "  Your own call can be allowed once (o); always is another user's to say, or a rule's.\n", deed{}
		}
		answer.Answer, answer.Scope = client.AnswerAlways, w.scope
	default:
		return "", deed{}
	}
	return "", deed{answer: &answer}
}

// saves reports whether "always" may be the answer.
func (w *watch) saves(a *client.Approval) bool { return savable(a) && (!w.own || a.SelfApprove) }

// typed edits the message of a rejection.
func (w *watch) typed(keys string) (string, deed) {
	if keys == "\x1b" {
		w.mode, w.message = watchDeciding, nil
		return "", deed{}
	}
	if strings.HasPrefix(keys, "\x1b") {
		return "", deed{} // an arrow or the like
	}
	for _, r := range keys {
		switch {
		case r == '\r' || r == '\n':
			return w.send()
		case r == 0x7f || r == '\b':
			_, n := utf8.DecodeLastRune(w.message)
			w.message = w.message[:len(w.message)-n]
		case r == 0x15: // Ctrl-U
			w.message = nil
		case r >= ' ' && r != utf8.RuneError && len(w.message) < maxMessage:
			w.message = utf8.AppendRune(w.message, r)
		}
	}
	return "", deed{}
}

func (w *watch) send() (string, deed) {
	message := strings.TrimSpace(string(w.message))
	if message == "" {
		return "", deed{} // a plain rejection also rejects others; that is another key
	}
	a := w.first()
	w.mode, w.message = watchDeciding, nil
	return "", deed{answer: &client.ApprovalAnswer{Answer: client.AnswerReject, Message: message, SHA256: a.SHA256}}
}

// skip leaves the first of the queue for somebody else.
func (w *watch) skip(now time.Time) string {
	id := w.queue[0].ID
	w.skipped[id] = true
	w.queue = w.queue[1:]
	return "  " + line(id) + " is skipped and stays pending\n" + w.show(now)
}

// replied takes what became of an answer to the first of the queue, which is replied then. One that
// could not be answered is skipped: it is somebody else's, or gone.
func (w *watch) replied(answer client.ApprovalAnswer, replied *client.Approval, err error, now time.Time) string {
	a := w.first()
	text := fmt.Sprintf("  %s %s", line(a.ID), answered(answer))
	if err != nil {
		text = "  " + painted(line(a.ID)+": "+line(err.Error()), colorRed, w.color)
	} else {
		for _, saved := range savedTexts(replied.Reply) {
			text += "\n    " + saved
		}
	}
	w.skipped[a.ID] = true // it may be listed for a moment yet
	w.queue = w.queue[1:]
	return text + "\n" + w.show(now)
}

// full shows the whole input of the call of the first of the queue, page by
// page.
func (w *watch) full(call *client.Call) string {
	a := w.first()
	if a == nil || a.CallID != call.ID {
		return ""
	}
	all := wrapLines(append(inputBody(call.Input), requestLines(a)...), w.width-4)
	w.pages = nil
	for page := range slices.Chunk(all, max(w.height-2, 3)) {
		w.pages = append(w.pages, joinLines(page, "  ", w.color))
	}
	w.mode = watchReading
	return "\n" + w.read(" ")
}

// read shows the next page, or leaves the full text. At its end keys answer
// again.
func (w *watch) read(keys string) string {
	if keys != " " || len(w.pages) == 0 {
		w.mode, w.pages = watchDeciding, nil
		return ""
	}
	page := w.pages[0]
	if w.pages = w.pages[1:]; len(w.pages) == 0 {
		w.mode = watchDeciding
		page += painted("  sha256 "+line(w.queue[0].SHA256), colorGrey, w.color) + "\n"
	}
	return page
}
