package relay

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Kinds of frames of HTTP/2, and the flag of one that ends its stream.
const (
	frameData    = 0
	frameHeaders = 1
	endStream    = 1
)

// frames follows the frames of HTTP/2 in what is written to a connection.
type frames struct {
	preface     int // bytes of a client's preface that are still to come
	header      []byte
	left        int // bytes of the present frame
	kind, flags byte
	stream      uint32
}

// follow calls wrote for each piece of a frame, and for the end of a frame without content.
func (f *frames) follow(b []byte, wrote func(bytes int)) {
	skip := min(f.preface, len(b))
	f.preface -= skip
	for b = b[skip:]; len(b) > 0; {
		if f.left == 0 {
			taken := min(9-len(f.header), len(b))
			f.header = append(f.header, b[:taken]...)
			b = b[taken:]
			if len(f.header) < 9 {
				return
			}
			h := f.header
			f.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
			f.kind, f.flags, f.stream = h[3], h[4], binary.BigEndian.Uint32(h[5:])&(1<<31-1)
			f.header = h[:0]
			if f.left > 0 {
				continue
			}
		}
		taken := min(f.left, len(b))
		f.left -= taken
		b = b[taken:]
		wrote(taken)
	}
}

// wire knows how many bytes of messages a connection has written to the kernel.
//
// A receipt has to be on its way before its handler starts, or a handler that kills the process is not counted.
// SendMsg of grpc-go returns earlier: another goroutine writes. So this counts the bytes of HTTP/2 DATA frames as
// they are written. The connection has one stream, so they are that stream's.
type wire struct {
	mu      sync.Mutex
	grown   *sync.Cond
	written int64
	closed  bool
	frames
}

func newWire() *wire {
	w := &wire{frames: frames{preface: len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}}
	w.grown = sync.NewCond(&w.mu)
	return w
}

// wait returns once this many bytes of messages are written; false if the connection ended before.
func (w *wire) wait(bytes int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.written < bytes && !w.closed {
		w.grown.Wait()
	}
	return w.written >= bytes
}

func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.grown.Broadcast()
}

func (w *wire) count(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.follow(b, func(bytes int) {
		if w.kind == frameData {
			w.written += int64(bytes)
		}
	})
	w.grown.Broadcast()
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

type wireConn struct {
	net.Conn
	wire *wire
}

func (c wireConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wire.count(b[:n])
	return n, err
}

func (c wireConn) Close() error {
	c.wire.close()
	return c.Conn.Close()
}

// counted are credentials whose connections are counted, behind TLS if there is any.
type counted struct {
	credentials.TransportCredentials
	wire *wire
}

func (c counted) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return wireConn{conn, c.wire}, info, nil
}

func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.wire}
}
