package relay

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	relayv1 "reminders/stubs/relay/v1"
)

func delivery() *Delivery {
	return &Delivery{&relayv1.Delivery{Topic: "t", TimerId: "a", Token: []byte{0xff, 0}}, func() {}}
}

// A handler's end is the outcome, and an error that it did not expect is named by its type only.
func TestOutcomes(t *testing.T) {
	pause, no := 1500*time.Millisecond, false
	for name, one := range map[string]struct {
		end  error
		want *relayv1.Settlement
	}{
		"ack":   {nil, &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_ACK}},
		"error": {errors.New("secret"), &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_NACK, Reason: "*errors.errorString"}},
		"nack": {&Nack{Reason: "busy", Pause: &pause}, &relayv1.Settlement{
			Outcome: relayv1.Outcome_OUTCOME_NACK, Reason: "busy", RetryAfter: durationpb.New(pause)}},
		"final": {&Nack{Final: true}, &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_NACK, Retryable: &no}},
		"reject": {&Reject{"no such customer"}, &relayv1.Settlement{
			Outcome: relayv1.Outcome_OUTCOME_REJECT, Reason: "no such customer"}},
		"reschedule": {&Reschedule{time.Minute}, &relayv1.Settlement{
			Outcome:    relayv1.Outcome_OUTCOME_RESCHEDULE,
			Reschedule: &relayv1.Reschedule{When: &relayv1.Reschedule_Delay{Delay: durationpb.New(time.Minute)}}}},
	} {
		one.want.Token = []byte{0xff, 0}
		got := settle(context.Background(), func(context.Context, *Delivery) error { return one.end }, delivery())
		if !proto.Equal(got, one.want) {
			t.Errorf("%s: got %v, want %v", name, got, one.want)
		}
	}
}

func TestAPanicIsANack(t *testing.T) {
	got := settle(context.Background(), func(context.Context, *Delivery) error { panic("secret") }, delivery())
	if got.Outcome != relayv1.Outcome_OUTCOME_NACK || got.Reason != "panic" {
		t.Errorf("got %v", got)
	}
}

// The bytes of DATA frames are counted, however they are cut, and those of other frames are not.
func TestTheWireCountsMessages(t *testing.T) {
	frame := func(kind byte, size int) []byte {
		return append([]byte{0, byte(size >> 8), byte(size), kind, 0, 0, 0, 0, 1}, make([]byte, size)...)
	}
	all := bytes.Join([][]byte{
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 6), frame(0, 300), frame(8, 4), frame(0, 0), frame(0, 7),
	}, nil)
	for size := 1; size <= len(all); size++ {
		w := newWire()
		for start := 0; start < len(all); start += size {
			w.count(all[start:min(start+size, len(all))])
		}
		if w.written != 307 {
			t.Fatalf("in pieces of %d bytes: %d", size, w.written)
		}
	}
}

func TestAWireThatEndsWakesWhoWaits(t *testing.T) {
	w := newWire()
	go w.close()
	if w.wait(1) {
		t.Error("nothing was written")
	}
}

func away(t *testing.T, pause time.Duration) error {
	t.Helper()
	answer, err := status.New(codes.Unavailable, "away").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(pause)})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Err()
}

// After the relay's own answer the next try waits for its pause; without one it waits for the deadline.
func TestWhenToTryAgain(t *testing.T) {
	p := &Producer{timeout: time.Minute}
	for name, one := range map[string]struct {
		first error
		least time.Duration
	}{
		"answered": {away(t, 300*time.Millisecond), 300 * time.Millisecond},
		"lost":     {status.Error(codes.Unavailable, "socket closed"), firstTry},
		"stopped":  {status.Error(codes.Canceled, "the relay stops"), firstTry},
	} {
		var at []time.Time
		err := p.repeat(context.Background(), func(context.Context) error {
			at = append(at, time.Now())
			if len(at) == 1 {
				return one.first
			}
			return nil
		})
		if err != nil || len(at) != 2 || at[1].Sub(at[0]) < one.least-5*time.Millisecond {
			t.Errorf("%s: %v, %v", name, err, at)
		}
	}
}

// A caller that cancels a call hears of it once the call can't act any more.
func TestACancelledCallIsOverBeforeItsCallerIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p, calls, began := &Producer{timeout: time.Minute}, 0, time.Now()
	err := p.repeat(ctx, func(ctx context.Context) error {
		calls++
		cancel()
		return status.FromContextError(ctx.Err()).Err()
	})
	if status.Code(err) != codes.Canceled || calls != 1 || time.Since(began) < firstTry {
		t.Errorf("%d calls, %v, after %s", calls, err, time.Since(began))
	}
}

func TestWhatIsFinalIsNotRepeated(t *testing.T) {
	p, calls := &Producer{timeout: time.Minute}, 0
	err := p.repeat(context.Background(), func(context.Context) error {
		calls++
		return status.Error(codes.InvalidArgument, "topic: is empty")
	})
	if status.Code(err) != codes.InvalidArgument || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
