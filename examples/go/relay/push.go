package relay

import (
	"context"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	relayv1 "reminders/stubs/relay/v1"
)

// heard is how long the relay has to learn that this application is NOT_SERVING.
const heard = 200 * time.Millisecond

type pushed struct {
	relayv1.UnimplementedTimerHandlerServer
	handler Handler
}

// Deliver handles one timer. Its receipt is the initial metadata.
func (p pushed) Deliver(
	ctx context.Context, request *relayv1.TimerHandlerDeliverRequest,
) (*relayv1.TimerHandlerDeliverResponse, error) {
	if err := grpc.SendHeader(ctx, metadata.Pairs("relay-receipt", "1")); err != nil {
		return nil, err
	}
	s := settle(ctx, p.handler, &Delivery{request.Delivery, func() {}})
	return &relayv1.TimerHandlerDeliverResponse{
		Outcome: s.Outcome, RetryAfter: s.RetryAfter, Reason: s.Reason, Retryable: s.Retryable,
		Reschedule: s.Reschedule,
	}, nil
}

// ServePush handles what a relay pushes to this address (host:port or unix:/path) until ctx ends. Then health says
// NOT_SERVING, and the calls that run have the grace.
func ServePush(ctx context.Context, address string, grace time.Duration, handler Handler) error {
	network, place := "tcp", address
	if path := strings.TrimPrefix(address, "unix:"); path != address {
		network, place = "unix", path
		_ = os.Remove(path) // a killed process leaves its socket behind
	}
	listener, err := net.Listen(network, place)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32)) // max_payload_bytes bounds it
	state := health.NewServer()
	healthv1.RegisterHealthServer(server, state)
	relayv1.RegisterTimerHandlerServer(server, pushed{handler: handler})
	go func() {
		<-ctx.Done()
		state.Shutdown()
		time.Sleep(heard)
		timer := time.AfterFunc(grace, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}
