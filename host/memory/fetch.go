package memory

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// Fetching descriptors takes one short connection:
//
//	server → client  nonce
//	client → server  magic, version, nonce, length of tag, HMAC(key, "fetch", nonces, tag), tag
//	server → client  magic, version, outcome, count, length of text,
//	                 HMAC(key, "found", nonces, tag, outcome, count, text), text, with the descriptors
//
// The kernel says that both ends belong to one user; the HMACs say that both
// belong to one communicator.
const (
	fetchVersion = 3
	fetchNonce   = 16
	fetchProof   = 32
	maxFetchTag  = 200
	requestBytes = 4 + 2 + fetchNonce + 2 + fetchProof
	replyBytes   = 4 + 2 + 1 + 1 + 2 + fetchProof
	maxServed    = 128
	serveTime    = 2 * time.Second // a client that takes longer to ask is dropped
)

// outcome is a server's reply about a tag.
type outcome uint8

const (
	unknown outcome = iota // nothing is published under it
	found
	lacking // the server has no descriptors to send
	failed  // what is asked for could not be made; count is the error's code, and text says why
)

var fetchMagic = [4]byte{'S', 'H', 'F', 'D'}

func proof(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		var w wire.Writer
		w.Bytes(part)
		mac.Write(w.B)
	}
	return mac.Sum(nil)
}

func encodeRequest(key, server, client []byte, tag string) []byte {
	w := wire.Writer{B: append([]byte(nil), fetchMagic[:]...)}
	w.U16(fetchVersion)
	w.B = append(w.B, client...)
	w.U16(uint16(len(tag)))
	w.B = append(w.B, proof(key, []byte("fetch"), server, client, []byte(tag))...)
	w.B = append(w.B, tag...)
	return w.B
}

// decodeRequest reads the part of a request that has a fixed size.
func decodeRequest(b []byte) (client, sum []byte, tagBytes int, err error) {
	r := wire.NewReader(b)
	readFetchVersion(r)
	client, sum = make([]byte, fetchNonce), make([]byte, fetchProof)
	r.Fixed(client)
	tagBytes = int(r.U16())
	r.Fixed(sum)
	if tagBytes > maxFetchTag {
		r.Fail("a tag of %d bytes, at most %d", tagBytes, maxFetchTag)
	}
	return client, sum, tagBytes, r.End()
}

func readFetchVersion(r *wire.Reader) {
	var magic [4]byte
	r.Fixed(magic[:])
	if magic != fetchMagic {
		r.Fail("not a message of a share (wrong magic)")
	}
	if v := r.U16(); v != fetchVersion {
		r.Fail("a share of version %d, this is version %d", v, fetchVersion)
	}
}

func encodeReply(key, server, client []byte, tag string, o outcome, count int, text string) []byte {
	w := wire.Writer{B: append([]byte(nil), fetchMagic[:]...)}
	w.U16(fetchVersion)
	w.U8(uint8(o))
	w.U8(uint8(count))
	w.U16(uint16(len(text)))
	w.B = append(w.B, proof(key, []byte("found"), server, client, []byte(tag), w.B[6:8], []byte(text))...)
	return append(w.B, text...)
}

// textLength returns the length of the text that follows the part of a reply that has a fixed size.
func textLength(b []byte) (int, error) {
	r := wire.NewReader(b)
	readFetchVersion(r)
	r.U8()
	r.U8()
	n := int(r.U16())
	if n > plugin.MaxText {
		r.Fail("a text of %d bytes, at most %d", n, plugin.MaxText)
	}
	return n, r.Err()
}

func decodeReply(b []byte, text string, key, server, client []byte, tag string) (o outcome, count int, err error) {
	r := wire.NewReader(b)
	readFetchVersion(r)
	o, count = outcome(r.U8()), int(r.U8())
	r.U16()
	var sum [fetchProof]byte
	r.Fixed(sum[:])
	if err := r.End(); err != nil {
		return unknown, 0, err
	}
	if !hmac.Equal(sum[:], proof(key, []byte("found"), server, client, []byte(tag), b[6:8], []byte(text))) {
		return unknown, 0, plugin.Errorf(plugin.Protocol, "the reply is not authentic")
	}
	if o > failed {
		return unknown, 0, plugin.Errorf(plugin.Protocol, "outcome %d is unknown", o)
	}
	return o, count, nil
}

// serve accepts peers until the share is closed.
func (s *Share) serve() {
	defer s.work.Done()
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if descriptors.Lacking(err) && !s.serving() {
				s.sayLacking()
			}
			time.Sleep(time.Millisecond)
			continue
		}
		s.slots <- struct{}{} // freed within twice serveTime, and what making takes
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.conns[conn] = true
			s.work.Add(1)
		}
		s.mu.Unlock()
		if closed {
			conn.Close()
			return
		}
		go func() {
			defer s.work.Done()
			_ = s.give(conn, false) // the peer learns of it and says what it wanted
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			<-s.slots
		}()
	}
}

// serving reports whether a connection is being served, whose descriptor comes
// back soon.
func (s *Share) serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) > 0
}

// sayLacking tells the peer that waits to be accepted, on the reserve, that
// there are no descriptors for it. It would wait for its deadline otherwise.
func (s *Share) sayLacking() {
	defer descriptors.Release()()
	_ = s.listener.SetDeadline(time.Now().Add(10 * time.Millisecond)) // fails if it is closed, as accepting does
	defer func() { _ = s.listener.SetDeadline(time.Time{}) }()
	conn, err := s.listener.AcceptUnix()
	if err != nil {
		return
	}
	_ = s.give(conn, true) // the peer learns of it
	conn.Close()
}

// give replies to one request, with the descriptors or with an error for want of them.
func (s *Share) give(conn *net.UnixConn, lack bool) error {
	if err := bootstrap.SameUser(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(serveTime)); err != nil {
		return err
	}
	var server [fetchNonce]byte
	rand.Read(server[:]) // never fails
	if _, err := conn.Write(server[:]); err != nil {
		return err
	}
	head := make([]byte, requestBytes)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	client, sum, tagBytes, err := decodeRequest(head)
	if err != nil {
		return err
	}
	tag := make([]byte, tagBytes)
	if _, err := io.ReadFull(conn, tag); err != nil {
		return err
	}
	if !hmac.Equal(sum, proof(s.key, []byte("fetch"), server[:], client, tag)) {
		return plugin.Errorf(plugin.Protocol, "a request that is not authentic")
	}
	result, fds, made, err := s.find(string(tag), lack)
	if err != nil {
		return err
	}
	defer closeAll(fds)
	// Making may have taken longer than a message, and longer than calls of this rank may take: who asks waits as long as
	// it likes. With no reply this rank counts as dead.
	if err := conn.SetDeadline(time.Now().Add(serveTime)); err != nil {
		return err
	}
	count, text := len(fds), ""
	if result == failed {
		count, text = int(plugin.CodeOf(made)), plugin.Printable(made.Error())
		text = text[:min(len(text), plugin.MaxText)]
	}
	reply := func(result outcome, count int, text string, fds ...int) error {
		_, _, err := conn.WriteMsgUnix(encodeReply(s.key, server[:], client, string(tag), result, count, text),
			unix.UnixRights(fds...), nil)
		return err
	}
	if err = reply(result, count, text, fds...); err != nil && len(fds) > 0 {
		err = errors.Join(err, reply(failed, int(plugin.System), fmt.Sprintf("sending %d descriptors: %v", len(fds), err)))
	}
	return err
}

// find returns the reply to an authentic request: copies of the descriptors, which may be withdrawn while they are
// being sent, or why none could be made.
func (s *Share) find(tag string, lack bool) (result outcome, fds []int, made, err error) {
	s.mu.Lock()
	s.served++
	o, maker := s.tagged[tag], s.makers[tag]
	switch {
	case lack:
		result = lacking
	case o != nil:
		result = found
		fds, err = duplicate(o.fds)
	}
	s.mu.Unlock()
	if result == unknown && maker != nil {
		result = found
		var fd int
		if fd, made = maker(); made == nil {
			fds = []int{fd}
		} else if err = made; !descriptors.Lacking(made) {
			return failed, nil, made, nil
		}
	}
	if descriptors.Lacking(err) {
		return lacking, nil, nil, nil
	}
	return result, fds, nil, err
}

// fetch gets the descriptors that a rank of this host has published under a
// tag, and makes sure that there are as many as it said.
func (s *Share) fetch(ctx context.Context, rank int, tag string, wanted int) ([]int, error) {
	for {
		began := time.Now()
		fds, err := s.fetchOnce(ctx, rank, tag, wanted)
		// The server, which lives, drops a rank that was stopped meanwhile.
		if plugin.CodeOf(err) != plugin.PeerDied || ctx.Err() != nil || time.Since(began) < serveTime {
			return fds, err
		}
	}
}

func (s *Share) fetchOnce(ctx context.Context, rank int, tag string, wanted int) ([]int, error) {
	conn, err := dial(ctx, s.peers[rank].socket)
	if err != nil {
		return nil, late(ctx, err, false)
	}
	defer conn.Close()
	// Reads and writes end with the context: at its deadline, or when a rank dies.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if s.beforeRequest != nil {
		s.beforeRequest(conn)
	}
	fds, asked, err := s.request(conn, tag)
	if err != nil {
		return nil, late(ctx, err, asked)
	}
	if len(fds) != wanted {
		closeAll(fds)
		return nil, plugin.Errorf(plugin.Protocol, "%d descriptors arrived, want %d", len(fds), wanted)
	}
	return fds, nil
}

// LateError is the error of a fetch whose time was over before the peer had replied.
type LateError struct {
	Asked bool // the peer's process has taken the request
	cause error
}

func (e *LateError) Error() string { return e.cause.Error() }

// Unwrap returns the reason why the fetch has ended.
func (e *LateError) Unwrap() error { return e.cause }

// late returns the error of a fetch that has failed.
func late(ctx context.Context, err error, asked bool) error {
	err = cause(ctx, err)
	if ctx.Err() != nil && plugin.CodeOf(err) == plugin.Timeout {
		return &LateError{asked, err}
	}
	return err
}

// cause prefers why the context ended to what that did to a connection.
func cause(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // a connection that is being made may notice first
	}
	if ctx.Err() == nil {
		return err
	}
	reason := context.Cause(ctx)
	if errors.Is(reason, context.DeadlineExceeded) {
		return plugin.Errorf(plugin.Timeout, "no reply in time (%w)", err)
	}
	if plugin.CodeOf(reason) == plugin.Internal { // the caller's own words
		return plugin.Errorf(plugin.CodeOf(ctx.Err()), "%w", reason)
	}
	return reason
}

// dial connects to a peer's server; a full backlog is tried again.
func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if errors.Is(err, syscall.EAGAIN) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			if descriptors.Lacking(err) {
				err = descriptors.Error(err, 1)
			}
			if errors.Is(err, syscall.ECONNREFUSED) {
				err = plugin.Errorf(plugin.PeerDied, "its server is gone: %w", err)
			}
			return nil, err
		}
		return conn.(*net.UnixConn), nil
	}
}

// request asks for the descriptors of a tag; asked says that the peer's server was there to be asked.
func (s *Share) request(conn *net.UnixConn, tag string) (fds []int, asked bool, err error) {
	var server, client [fetchNonce]byte
	rand.Read(client[:]) // never fails
	if err := bootstrap.SameUser(conn); err != nil {
		return nil, false, err
	}
	if _, err := io.ReadFull(conn, server[:]); err != nil {
		return nil, false, lost(err)
	}
	if _, err := conn.Write(encodeRequest(s.key, server[:], client[:], tag)); err != nil {
		return nil, false, lost(err)
	}
	fds, err = s.receive(conn, tag, server[:], client[:])
	return fds, true, err
}

// receive reads the reply to a request.
func (s *Share) receive(conn *net.UnixConn, tag string, server, client []byte) ([]int, error) {
	reply := make([]byte, replyBytes)
	n, fds, err := receive(conn, reply)
	if err == nil {
		_, err = io.ReadFull(conn, reply[n:])
	}
	var text []byte
	if err == nil {
		if n, err = textLength(reply); err == nil {
			text = make([]byte, n)
			_, err = io.ReadFull(conn, text)
		}
	}
	if err != nil {
		closeAll(fds)
		return nil, lost(err)
	}
	result, count, err := decodeReply(reply, string(text), s.key, server, client, tag)
	switch {
	case err != nil:
	case result == lacking:
		err = plugin.Errorf(plugin.OutOfMemory, "EMFILE: that process has too many open files; raise its limit (ulimit -n)")
	case result == failed:
		err = plugin.Errorf(plugin.Code(count), "that process could not make it: %s", plugin.Printable(string(text)))
	case result == unknown:
		err = plugin.Errorf(plugin.Protocol, "it has published nothing of that name")
	case count > len(fds):
		err = plugin.Errorf(plugin.OutOfMemory, "%d of %d descriptors arrived: %w", len(fds), count,
			descriptors.Error(unix.EMFILE, count-len(fds)))
	case count < len(fds):
		err = plugin.Errorf(plugin.Protocol, "%d descriptors arrived, want %d", len(fds), count)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// lost words the end of a connection.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) {
		return plugin.Errorf(plugin.PeerDied, "it closed the connection: %w", err)
	}
	return err
}

// receive reads once, with the descriptors that come along. They are closed on
// exec. Whatever arrived is returned even on error.
func receive(conn *net.UnixConn, b []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxShared))
	n, oobn, flags, _, err := conn.ReadMsgUnix(b, oob)
	if oobn > 0 {
		messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
		if parseErr != nil {
			return n, nil, plugin.Errorf(plugin.Protocol, "malformed control message: %w", parseErr)
		}
		for _, m := range messages {
			got, parseErr := unix.ParseUnixRights(&m)
			if parseErr == nil {
				fds = append(fds, got...)
			}
		}
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = plugin.Errorf(plugin.OutOfMemory, "only %d descriptors arrived: %w", len(fds),
			descriptors.Error(unix.EMFILE, 1))
	}
	return n, fds, err
}
