package relay

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	relayv1 "reminders/stubs/relay/v1"
)

const firstTry = time.Second

// Producer schedules and cancels timers.
type Producer struct {
	channel *grpc.ClientConn
	timers  relayv1.TimerServiceClient
	timeout time.Duration
}

// NewProducer makes a producer whose calls are tried for the timeout. Nil credentials are plain text.
func NewProducer(
	target string, transport credentials.TransportCredentials, timeout time.Duration,
) (*Producer, error) {
	if transport == nil {
		transport = insecure.NewCredentials()
	}
	channel, err := grpc.Dial(target, grpc.WithTransportCredentials(transport), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	return &Producer{channel, relayv1.NewTimerServiceClient(channel), timeout}, nil
}

// Close closes the connection.
func (p *Producer) Close() error { return p.channel.Close() }

// Schedule stores a timer, or replaces the one with its id. When it returns without an error, the timer is stored.
func (p *Producer) Schedule(ctx context.Context, timer *relayv1.TimerSpec) (*relayv1.ScheduleResponse, error) {
	var answer *relayv1.ScheduleResponse
	err := p.repeat(ctx, func(ctx context.Context) (err error) {
		answer, err = p.timers.Schedule(ctx, &relayv1.ScheduleRequest{Timer: timer})
		return err
	})
	return answer, err
}

// Cancel removes a timer, even while it is being delivered. It returns whether there was one.
func (p *Producer) Cancel(ctx context.Context, topic, timerID string) (bool, error) {
	var answer *relayv1.CancelResponse
	err := p.repeat(ctx, func(ctx context.Context) (err error) {
		answer, err = p.timers.Cancel(ctx, &relayv1.CancelRequest{Topic: topic, TimerId: timerID})
		return err
	})
	return answer.GetCancelled(), err
}

// repeat makes a call again while the relay or its Redis is away.
//
// A try without an answer may act until its deadline, and would undo what came after it. So each try has a short
// deadline, and what comes next, another try or an error, waits for the relay's answer or for that deadline.
func (p *Producer) repeat(ctx context.Context, call func(context.Context) error) error {
	end := time.Now().Add(p.timeout)
	life, pause := firstTry, 50*time.Millisecond
	for {
		deadline := time.Now().Add(life)
		if deadline.After(end) {
			deadline = end
		}
		err := try(ctx, deadline, call)
		code := status.Code(err)
		switch code {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		default:
			return err
		}
		wait, answered := retryInfo(err)
		if !answered {
			wait = time.Until(deadline)
		} else if wait < pause {
			wait = pause
		}
		if answered && time.Now().Add(wait).After(end) {
			return err
		}
		time.Sleep(wait) // also after ctx has ended: until then the try may act
		if ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
		if code == codes.DeadlineExceeded {
			life *= 2 // the relay may only be slow
		}
		if pause *= 2; pause > 2*time.Second {
			pause = 2 * time.Second
		}
	}
}

func try(ctx context.Context, deadline time.Time, call func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return call(ctx)
}

// retryInfo returns the pause for which a relay asks; false if no relay has answered.
func retryInfo(err error) (time.Duration, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
