package relay

import (
	"context"
	"net"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// receipts knows for which calls a connection has written the initial metadata to the kernel.
//
// By push that is the receipt, and SendHeader of grpc-go returns before another goroutine writes it: see wire.
type receipts struct {
	mu      sync.Mutex
	waiting map[uint32]chan bool // by stream
	closed  bool
	frames
}

// expect returns a channel that says whether the initial metadata of this stream was written before the connection ended.
func (r *receipts) expect(stream uint32) <-chan bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := make(chan bool, 1)
	r.waiting[stream] = left
	if r.closed {
		r.tell(stream, false)
	}
	return left
}

func (r *receipts) tell(stream uint32, written bool) {
	if left, ok := r.waiting[stream]; ok {
		delete(r.waiting, stream)
		left <- written
	}
}

// forget is for a call that was cut off, whose metadata may never be written.
func (r *receipts) forget(stream uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, stream)
}

func (r *receipts) count(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow(b, func(int) {
		if r.kind == frameHeaders && r.flags&endStream == 0 && r.left == 0 {
			r.tell(r.stream, true)
		}
	})
}

func (r *receipts) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for stream := range r.waiting {
		r.tell(stream, false)
	}
}

// sendReceipt returns once the receipt of this call has left.
func sendReceipt(ctx context.Context) error {
	receipt := metadata.Pairs("relay-receipt", "1")
	caller, _ := peer.FromContext(ctx)
	known, isKnown := caller.AuthInfo.(receiptsInfo)
	stream := streamID(ctx)
	if !isKnown || stream == 0 {
		return grpc.SendHeader(ctx, receipt)
	}
	left := known.receipts.expect(stream)
	defer known.receipts.forget(stream)
	if err := grpc.SendHeader(ctx, receipt); err != nil {
		return err
	}
	select {
	case written := <-left:
		if !written {
			return status.Error(codes.Canceled, "the connection has ended")
		}
	case <-ctx.Done():
	}
	return ctx.Err()
}

// streamID is the call's number on its connection, which grpc-go keeps to itself; 0 if it can't be found there.
func streamID(ctx context.Context) uint32 {
	stream := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx))
	if stream.Kind() != reflect.Ptr || stream.Elem().Kind() != reflect.Struct {
		return 0
	}
	if id := stream.Elem().FieldByName("id"); id.IsValid() && id.Kind() == reflect.Uint32 {
		return uint32(id.Uint())
	}
	return 0
}

type receiptsConn struct {
	net.Conn
	receipts *receipts
}

func (c receiptsConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.receipts.count(b[:n])
	return n, err
}

func (c receiptsConn) Close() error {
	c.receipts.close()
	return c.Conn.Close()
}

type receiptsInfo struct {
	credentials.AuthInfo
	receipts *receipts
}

// withReceipts are credentials of a server whose connections know them, behind TLS if there is any.
type withReceipts struct {
	credentials.TransportCredentials
}

func (c withReceipts) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	known := &receipts{waiting: make(map[uint32]chan bool)}
	return receiptsConn{conn, known}, receiptsInfo{info, known}, nil
}

func (c withReceipts) Clone() credentials.TransportCredentials {
	return withReceipts{c.TransportCredentials.Clone()}
}
