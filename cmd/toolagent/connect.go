package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
)

// connectOut carries standard input and output to a host, through the HTTP proxy of the sandbox:
// for programs that know no proxy but can start one, as ssh can. It runs as a tool.
func connectOut(host, port string) error {
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", proxyPort))
	if err != nil {
		return fmt.Errorf("this session has no network: %w", err)
	}
	to := net.JoinHostPort(host, port)
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return errors.Join(err, c.Close())
	}
	in := bufio.NewReader(c)
	// Not by net/http, which would be a third of the agent.
	head := textproto.NewReader(in)
	status, err := head.ReadLine()
	if err == nil {
		_, err = head.ReadMIMEHeader()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("connect to %s: %w", to, err), c.Close())
	}
	if _, code, _ := strings.Cut(status, " "); !strings.HasPrefix(code, "200 ") {
		why, _ := io.ReadAll(io.LimitReader(in, 1<<10))
		return errors.Join(errors.New(strings.TrimSpace(string(why))), c.Close())
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, in)
	return errors.Join(err, c.Close())
}
