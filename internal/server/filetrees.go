package server

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// callHeader names the call that a tar comes from. It says what the tar has not.
const callHeader = "Toold-Call"

// getTree answers with a tar as it is made.
func (s fileRoutes) getTree(x *exchange, r *request) error {
	if r.Method == http.MethodHead {
		return invalidStatus(http.StatusMethodNotAllowed, "an archive has no HEAD: it is made as it is sent", "use GET")
	}
	body, call, err := s.cfg.API.Files.Pack(r.Context(), r.who, r.id, r.query.Get("path"), s.cfg.MaxFile)
	if err != nil {
		return err
	}
	defer body.Close()
	x.Header().Set(callHeader, call)
	if err := s.sendBytes(x, r, body, -1); err != nil {
		panic(http.ErrAbortHandler) // the call says why; the client sees that there was no end
	}
	return nil
}

// putTree has the body unpacked as it arrives. However it ends, the answer is the call,
// which says what was written.
func (s fileRoutes) putTree(x *exchange, r *request) error {
	if r.query.Has("mode") {
		return invalid("an archive has modes of its own", "leave mode out")
	}
	if r.ContentLength > s.cfg.MaxFile {
		return invalidStatus(http.StatusRequestEntityTooLarge, fmt.Sprintf("the archive is longer than %d bytes", s.cfg.MaxFile),
			"send it in parts, or mount the directory that has it")
	}
	rc := http.NewResponseController(x.ResponseWriter)
	if err := rc.EnableFullDuplex(); err != nil { // the answer may come before the body has
		return err
	}
	out, in := io.Pipe()
	body := &uploadBody{s: s.Server, x: x, from: r.Body}
	done := make(chan error, 1)
	go func() {
		_, broken := io.Copy(in, body)
		in.CloseWithError(broken) // nil is io.EOF
		done <- broken
	}()
	call, err := s.cfg.API.Files.Unpack(r.Context(), r.who, r.id, r.query.Get("path"), s.cfg.MaxFile, out)
	_ = out.Close()
	body.stop()
	if <-done != nil {
		x.Header().Set("Connection", "close") // what is still to come of the body is no request
	}
	if err := x.answer(call, err); err != nil {
		s.fail(x, r.Request, err)
	}
	_ = rc.Flush()
	_ = rc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, r.Body)
	return nil
}

// lingerTime is how long a client may go on to send what nobody reads any more. One that is
// cut off at once may see that before it sees the answer.
const lingerTime = time.Second
