// Package relay is a client of the Relay protocol: a stream of deliveries, push, and Schedule.
//
// It is an example to copy from. docs/reference/protocol.md says what is exchanged, and why.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	relayv1 "reminders/stubs/relay/v1"
)

// Delivery is one attempt at handing a timer to this application.
type Delivery struct {
	*relayv1.Delivery
	extend func()
}

// Extend says that the work goes on, so that delivery_timeout starts over. It has no effect by push.
func (d *Delivery) Extend() { d.extend() }

// Handler does the work. To return nil is ACK; *Nack, *Reject and *Reschedule say what they are called; any other
// error is a NACK. The context ends when the lease is lost. A timer may come twice: OccurrenceId is the same then.
type Handler func(ctx context.Context, d *Delivery) error

// Nack fails a delivery: the timer comes again after Pause, or, where that is nil, as the topic's retry policy says.
// Final says that another attempt is useless: the timer is dead.
type Nack struct {
	Reason string
	Pause  *time.Duration
	Final  bool
}

// Reject makes the timer dead for a reason.
type Reject struct{ Reason string }

// Reschedule makes the timer due again, as a new occurrence.
type Reschedule struct{ Delay time.Duration }

func (n *Nack) Error() string       { return "nack: " + n.Reason }
func (r *Reject) Error() string     { return "reject: " + r.Reason }
func (r *Reschedule) Error() string { return fmt.Sprintf("reschedule: in %s", r.Delay) }

// settle calls the handler; its end is the outcome.
func settle(ctx context.Context, handler Handler, d *Delivery) (settlement *relayv1.Settlement) {
	defer func() {
		if recover() != nil { // the value may quote the payload
			log.Printf("%s/%s: the handler panicked", d.Topic, d.TimerId)
			settlement = &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_NACK, Reason: "panic"}
		}
		settlement.Token = d.Token
	}()
	return outcome(handler(ctx, d), d)
}

func outcome(err error, d *Delivery) *relayv1.Settlement {
	var nack *Nack
	var reject *Reject
	var reschedule *Reschedule
	switch {
	case err == nil:
		return &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_ACK}
	case errors.As(err, &nack):
		s := &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_NACK, Reason: nack.Reason}
		if nack.Pause != nil {
			s.RetryAfter = durationpb.New(*nack.Pause)
		}
		if nack.Final {
			retryable := false
			s.Retryable = &retryable
		}
		return s
	case errors.As(err, &reject):
		return &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_REJECT, Reason: reject.Reason}
	case errors.As(err, &reschedule):
		when := &relayv1.Reschedule_Delay{Delay: durationpb.New(reschedule.Delay)}
		return &relayv1.Settlement{
			Outcome:    relayv1.Outcome_OUTCOME_RESCHEDULE,
			Reschedule: &relayv1.Reschedule{When: when},
		}
	}
	log.Printf("%s/%s failed: %v", d.Topic, d.TimerId, err)
	return &relayv1.Settlement{Outcome: relayv1.Outcome_OUTCOME_NACK, Reason: fmt.Sprintf("%T", err)}
}
