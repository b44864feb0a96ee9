package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	relayv1 "reminders/stubs/relay/v1"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	endPatience  = 5 * time.Second
)

// Stream is what Serve needs to know.
type Stream struct {
	Target string
	Topics []string
	// Places is how many deliveries are held, and how many handlers run, at a time.
	Places int
	// Grace is how long running handlers have once Serve's context has ended; 20 s where it is 0.
	Grace time.Duration
	// Credentials are for a relay behind TLS; nil is plain text, for a relay on this machine.
	Credentials credentials.TransportCredentials
}

// Serve handles due timers until ctx ends, and opens the stream again whenever the relay has gone. Then it drains. It
// returns an error if the relay refuses the stream.
func Serve(ctx context.Context, s Stream, handler Handler) error {
	if s.Grace == 0 {
		s.Grace = 20 * time.Second
	}
	pause := firstPause
	jitter := rand.New(rand.NewSource(time.Now().UnixNano())) // before Go 1.20 rand.Float64 is the same in each process
	for ctx.Err() == nil {
		opened, err := serveOnce(ctx, s, handler)
		if fatal(err) {
			return fmt.Errorf("the relay refuses the stream: %w", err)
		}
		if ctx.Err() != nil {
			break
		}
		if opened {
			pause = firstPause
		}
		log.Printf("the stream has ended (%v), opening it again", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(pause) * (0.5 + jitter.Float64()/2))):
		}
		if pause *= 2; pause > longestPause {
			pause = longestPause
		}
	}
	return nil
}

// fatal tells whether another try is useless.
func fatal(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// serveOnce is one stream, on a connection of its own: see wire.
func serveOnce(ctx context.Context, s Stream, handler Handler) (opened bool, err error) {
	transport := s.Credentials
	if transport == nil {
		transport = insecure.NewCredentials()
	}
	line := newWire()
	channel, err := grpc.Dial(
		s.Target,
		grpc.WithTransportCredentials(counted{transport, line}),
		grpc.WithNoProxy(),
		// A message has about 2 MiB, and one big payload may have more. The relay bounds it, not gRPC's 4 MiB.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return false, err
	}
	defer channel.Close()
	life, end := context.WithCancel(context.Background()) // not ctx: the stream outlives it, to drain
	defer end()
	call, err := relayv1.NewDeliveryServiceClient(channel).Deliver(life)
	if err != nil {
		return false, err
	}
	session := newSession(life, call, line, s.Places, handler)
	session.send(&relayv1.DeliverRequest{Message: &relayv1.DeliverRequest_Open{
		Open: &relayv1.Open{Topics: s.Topics, MaxOutstanding: int32(s.Places)},
	}})
	go session.write()
	go func() {
		select {
		case <-ctx.Done():
		case <-life.Done():
			return
		}
		session.drain(true)
		select {
		case <-life.Done():
		case <-time.After(s.Grace + endPatience):
			end()
		}
	}()
	for {
		response, err := call.Recv()
		if err != nil {
			session.over()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return session.opened, err
		}
		session.hear(response)
	}
}
