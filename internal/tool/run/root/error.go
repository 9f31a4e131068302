package root

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Code says what kind of failure an Error is. The set is closed.
type Code string

// The codes.
const (
	// InvalidPath: the path can never name a file here (empty, NUL, too long,
	// loops, dangling link, a link of /proc, through a file).
	InvalidPath Code = "invalid_path"
	// NotRegular: there is something else than a regular file (or, where a
	// directory was asked for, than a directory).
	NotRegular Code = "not_regular_file"
	// Stale: the tree is not as it was when the path was resolved or the file read.
	Stale Code = "stale"
	// NotExist: nothing is there.
	NotExist Code = "not_exist"
	// Denied: the tool user may not.
	Denied Code = "denied"
	// TooLarge: there is more than the caller allowed.
	TooLarge Code = "too_large"
	// Failed: the system could not (disk full, read-only file system, locked …).
	Failed Code = "failed"
	// Aborted: the context ended; the Error wraps its cause.
	Aborted Code = "aborted"
	// Broken: a thread has the wrong identity; the session must be ended.
	Broken Code = "broken"
)

// Error is how every method of Root fails. Msg is
// a whole sentence for the caller of a tool; hostile names in it are quoted.
type Error struct {
	Code Code
	Msg  string
	Err  error // the cause, may be nil
	// Hint is what to do next; "" where the code says it all.
	Hint string
	// Foreign: the tool user may not because somebody else owns the file.
	Foreign bool
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf gives the code of err, "" when it is not one of Root's.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func errf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// next is e with what to do next.
func (e *Error) next(hint string) *Error {
	e.Hint = hint
	return e
}

// What to do next about several errors.
const (
	shorterNames = "use shorter names, or bash and cd there in steps"
	ownProcess   = "leave it out: nothing of the session is there"
)

// aborted is the error of work that was given up because ctx ended.
func aborted(ctx context.Context) error {
	cause := context.Cause(ctx)
	return &Error{Code: Aborted, Msg: "stopped before it was done: " + cause.Error(), Err: cause}
}

// sysError words a system call's failure. What is verb ("open", "write to") and
// path are for the message.
func sysError(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	code, why, hint := Failed, err.Error(), ""
	switch {
	case errors.Is(err, unix.ENOENT):
		code, why = NotExist, "it does not exist"
	case errors.Is(err, unix.ENOTDIR):
		code, why, hint = InvalidPath, "a part of the path is not a directory", "give the path of that file alone, or of another directory; list shows which there are"
	case errors.Is(err, unix.ENAMETOOLONG):
		code, why, hint = InvalidPath, "the path or a name in it is too long (at most 4095 bytes, 255 a name)", shorterNames
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		code, why = Denied, "permission denied"
	case errors.Is(err, unix.EOVERFLOW): // the kernel has no id for the owner here
		return foreign(&Error{Code: Denied, Msg: fmt.Sprintf("cannot %s %q", verb, path), Err: err}, nobody)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		code, why = NotRegular, "it is a socket or a device"
	case errors.Is(err, unix.EAGAIN):
		why = "another process holds a lock or a lease on it, or keeps moving it; try again"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		why = "no space is left (bytes or inodes): remove files there or write elsewhere; sessions made with a larger limits.disk (of /tmp: limits.tmp, where that is set) have more"
	case errors.Is(err, unix.EROFS):
		why = "the file system is read-only"
	case errors.Is(err, unix.EFBIG):
		why = "it would be larger than the session's file size limit"
	}
	return &Error{Code: code, Msg: fmt.Sprintf("cannot %s %q: %s", verb, path, why), Err: err, Hint: hint}
}

// nobody is what the kernel shows of an owner who has no id in the sandbox.
const nobody = 65534

// foreign says of a failure for want of rights that uid owns the file.
func foreign(e *Error, uid uint32) *Error {
	owner := fmt.Sprintf("user %d", uid)
	if uid == nobody {
		owner = "a user of the host"
	}
	msg := fmt.Sprintf("%s: it belongs to %s, who is not in this session; the owner can give access on the host (chmod, chown)", e.Msg, owner)
	return &Error{Code: e.Code, Msg: msg, Err: e.Err, Foreign: true}
}

// owned adds to an error about a file who owns it, where the tool user may not and
// does not own it.
func owned(err error, stat func(*unix.Stat_t) error) error {
	e, ok := errors.AsType[*Error](err)
	var st unix.Stat_t
	if !ok || e.Code != Denied || e.Foreign || stat(&st) != nil || int(st.Uid) == unix.Geteuid() {
		return err
	}
	return foreign(e, st.Uid)
}

// ownedAt is owned for name in dirfd.
func ownedAt(err error, dirfd int, name string) error {
	return owned(err, func(st *unix.Stat_t) error { return unix.Fstatat(dirfd, name, st, unix.AT_SYMLINK_NOFOLLOW) })
}

// judgedError is sysError for canonical paths, where a symlink or a missing
// part means that the tree has changed since the path was resolved.
func judgedError(verb, path string, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return &Error{Code: Stale, Msg: fmt.Sprintf("cannot %s %q: the path has changed since it was resolved", verb, path), Err: err}
	}
	return sysError(verb, path, err)
}
