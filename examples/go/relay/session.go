package relay

import (
	"context"
	"log"
	"sync"

	"google.golang.org/protobuf/proto"

	relayv1 "reminders/stubs/relay/v1"
)

// frame is the most receipts, and the most outcomes, that go into one message.
const frame = 500

type running struct {
	delivery *Delivery
	lost     context.CancelFunc
	ctx      context.Context
}

// session is one stream, from its Open to its end. All fields below mu are guarded by it.
type session struct {
	life    context.Context
	call    relayv1.DeliveryService_DeliverClient
	line    *wire
	sent    int64 // bytes; the writer's own
	places  int
	handler Handler
	opened  bool // the reader's own

	mu          sync.Mutex
	wake        *sync.Cond
	waiting     []*relayv1.Delivery // no place is free for them
	running     map[string]*running // by token: what has a place, and no outcome that is queued
	starting    []*running          // whose receipts are to be written
	settlements []*relayv1.Settlement
	draining    bool
	tell        bool
	ended       bool
}

func newSession(
	life context.Context, call relayv1.DeliveryService_DeliverClient, line *wire, places int, handler Handler,
) *session {
	s := &session{life: life, call: call, line: line, places: places, handler: handler}
	s.running = map[string]*running{}
	s.wake = sync.NewCond(&s.mu)
	return s
}

// hear takes what the relay says. Kinds of messages that are unknown come from a newer relay, and are left alone.
func (s *session) hear(response *relayv1.DeliverResponse) {
	switch message := response.Message.(type) {
	case *relayv1.DeliverResponse_Opened:
		s.opened = true
		log.Print("the stream is open")
	case *relayv1.DeliverResponse_Deliveries:
		s.mu.Lock()
		if !s.draining { // what crosses a Drain on its way has no receipt, and costs no attempt
			s.waiting = append(s.waiting, message.Deliveries.Deliveries...)
			s.begin()
		}
		s.mu.Unlock()
	case *relayv1.DeliverResponse_Problems:
		for _, problem := range message.Problems.Problems {
			s.report(problem)
		}
	case *relayv1.DeliverResponse_Drain:
		s.drain(false)
	}
}

// begin gives free places to what waits; mu is held. Their handlers start once the receipts are written.
func (s *session) begin() {
	for len(s.running) < s.places && len(s.waiting) > 0 {
		message := s.waiting[0]
		s.waiting = s.waiting[1:]
		one := &running{}
		one.ctx, one.lost = context.WithCancel(s.life)
		one.delivery = &Delivery{message, func() {
			s.settle(&relayv1.Settlement{Token: message.Token, Outcome: relayv1.Outcome_OUTCOME_EXTEND})
		}}
		s.running[string(message.Token)] = one
		s.starting = append(s.starting, one)
	}
	s.wake.Signal()
}

func (s *session) handle(one *running) {
	settlement := settle(one.ctx, s.handler, one.delivery)
	one.lost()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, string(one.delivery.Token))
	s.settlements = append(s.settlements, settlement)
	s.begin()
}

func (s *session) settle(settlement *relayv1.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settlements = append(s.settlements, settlement)
	s.wake.Signal()
}

func (s *session) report(problem *relayv1.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.running[string(problem.Token)]
	name := "an ended delivery"
	if one != nil {
		name = one.delivery.TimerId
	}
	log.Printf("the relay took no outcome of %s: %s", name, problem.Message)
	switch problem.Reason {
	case relayv1.ProblemReason_PROBLEM_REASON_STALE, relayv1.ProblemReason_PROBLEM_REASON_GONE:
		if one != nil {
			one.lost() // its outcome is sent all the same: until then it keeps its place
		}
	}
}

// drain begins nothing new. When all that runs is settled, the writer ends our side.
func (s *session) drain(tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining, s.tell, s.waiting = true, tell, nil
	s.wake.Signal()
}

// over ends the writer. Handlers that run have lost their leases: their contexts end with the stream's.
func (s *session) over() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.wake.Signal()
	s.line.close()
}

// write is the one writer. Receipts and outcomes that come while a write is under way go into the next message.
func (s *session) write() {
	for {
		said, starting, more := s.next()
		if !more {
			return
		}
		if said == nil {
			_ = s.call.CloseSend()
			return
		}
		if !s.send(said) || len(starting) > 0 && !s.line.wait(s.sent) {
			return // a handler whose receipt is lost must not start
		}
		for _, one := range starting {
			go s.handle(one)
		}
	}
}

// next waits for what is to be written; nil is the end of our side, and more is false once the stream is over.
func (s *session) next() (said *relayv1.DeliverRequest, starting []*running, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && !s.tell && len(s.starting)+len(s.settlements) == 0 && !(s.draining && len(s.running) == 0) {
		s.wake.Wait()
	}
	if s.ended {
		return nil, nil, false
	}
	if s.tell {
		s.tell = false
		return &relayv1.DeliverRequest{Message: &relayv1.DeliverRequest_Drain{Drain: &relayv1.Drain{}}}, nil, true
	}
	if len(s.starting)+len(s.settlements) == 0 {
		return nil, nil, true
	}
	starting = s.starting[:min(frame, len(s.starting))]
	s.starting = s.starting[len(starting):]
	settlements := s.settlements[:min(frame, len(s.settlements))]
	s.settlements = s.settlements[len(settlements):]
	settle := &relayv1.Settle{Settlements: settlements}
	for _, one := range starting {
		settle.Received = append(settle.Received, one.delivery.Token)
	}
	return &relayv1.DeliverRequest{Message: &relayv1.DeliverRequest_Settle{Settle: settle}}, starting, true
}

// send hands a message to gRPC, and counts the bytes that it will write: five of a header, and the message.
func (s *session) send(message *relayv1.DeliverRequest) bool {
	if s.call.Send(message) != nil {
		return false // Recv has the reason
	}
	s.sent += 5 + int64(proto.Size(message))
	return true
}
