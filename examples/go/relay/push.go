package relay

import (
	"context"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	relayv1 "reminders/stubs/relay/v1"
)

// heard is how long the relay has to learn that this application is NOT_SERVING.
const heard = 200 * time.Millisecond

// Push is what ServePush needs to know.
type Push struct {
	// Address is host:port or unix:/path.
	Address string
	// Topics are those that the handler is for. What is pushed of others waits until somebody handles it.
	Topics []string
	// Grace is how long running handlers have once ServePush's context has ended; 20 s where it is 0.
	Grace time.Duration
}

type pushed struct {
	relayv1.UnimplementedTimerHandlerServer
	topics  map[string]bool
	handler Handler
}

// Deliver handles one timer. Its receipt is the initial metadata.
func (p pushed) Deliver(
	ctx context.Context, request *relayv1.TimerHandlerDeliverRequest,
) (*relayv1.TimerHandlerDeliverResponse, error) {
	if topic := request.GetDelivery().GetTopic(); !p.topics[topic] {
		return nil, status.Errorf(codes.Unimplemented, "topic %q has no handler here", topic)
	}
	if err := sendReceipt(ctx); err != nil {
		return nil, err
	}
	s := settle(ctx, p.handler, &Delivery{request.Delivery, func() {}})
	return &relayv1.TimerHandlerDeliverResponse{
		Outcome: s.Outcome, RetryAfter: s.RetryAfter, Reason: s.Reason, Retryable: s.Retryable,
		Reschedule: s.Reschedule,
	}, nil
}

// ServePush handles what a relay pushes until ctx ends. Then health says NOT_SERVING, and the calls that run have the
// grace.
func ServePush(ctx context.Context, p Push, handler Handler) error {
	if p.Grace == 0 {
		p.Grace = 20 * time.Second
	}
	network, place := "tcp", p.Address
	if path := strings.TrimPrefix(p.Address, "unix:"); path != p.Address {
		network, place = "unix", path
		_ = os.Remove(path) // a killed process leaves its socket behind
	}
	listener, err := net.Listen(network, place)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.Creds(withReceipts{insecure.NewCredentials()}),
		grpc.MaxRecvMsgSize(math.MaxInt32), // max_payload_bytes bounds it
	)
	state := health.NewServer()
	healthv1.RegisterHealthServer(server, state)
	topics := make(map[string]bool)
	for _, topic := range p.Topics {
		topics[topic] = true
	}
	relayv1.RegisterTimerHandlerServer(server, pushed{topics: topics, handler: handler})
	go func() {
		<-ctx.Done()
		state.Shutdown()
		time.Sleep(heard)
		timer := time.AfterFunc(p.Grace, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}
