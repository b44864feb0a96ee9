package relay

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

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
	preface int // bytes of the client's preface that are still to come
	header  []byte
	left    int // bytes of the present frame
	data    bool
}

func newWire() *wire {
	w := &wire{preface: len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}
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
	skip := min(w.preface, len(b))
	w.preface -= skip
	for b = b[skip:]; len(b) > 0; {
		if w.left == 0 {
			taken := min(9-len(w.header), len(b))
			w.header = append(w.header, b[:taken]...)
			b = b[taken:]
			if len(w.header) < 9 {
				return
			}
			w.left = int(w.header[0])<<16 | int(w.header[1])<<8 | int(w.header[2])
			w.data = w.header[3] == 0
			w.header = w.header[:0]
			continue
		}
		taken := min(w.left, len(b))
		w.left -= taken
		b = b[taken:]
		if w.data {
			w.written += int64(taken)
		}
	}
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
