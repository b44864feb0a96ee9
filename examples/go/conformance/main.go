// Command conformance is this client as `relay conformance` wants it: it does what a delivery's payload says.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"reminders/relay"
	relayv1 "reminders/stubs/relay/v1"
)

// handle does what the first word says, with what stands behind it.
func handle(_ context.Context, d *relay.Delivery) error {
	word, rest, _ := strings.Cut(string(d.Payload), " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "ack":
		return nil
	case "nack":
		if rest == "" {
			return &relay.Nack{}
		}
		pause, err := milliseconds(rest)
		return either(err, &relay.Nack{Pause: &pause})
	case "final":
		return &relay.Nack{Final: true}
	case "error":
		return errors.New(rest)
	case "reject":
		return &relay.Reject{Reason: rest}
	case "reschedule":
		delay, err := milliseconds(rest)
		return either(err, &relay.Reschedule{Delay: delay})
	case "extend":
		d.Extend()
		fallthrough
	case "hold":
		for _, err := os.Stat(rest); err != nil; _, err = os.Stat(rest) {
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	case "freeze":
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "tell":
		due := d.DueTime.AsTime().UnixMicro()
		return &relay.Reject{Reason: fmt.Sprintf("%s|%d|%d|%s|%s|%s|%s", d.TimerId, d.Attempt, due, d.OccurrenceId,
			d.ContentType, d.Headers["ort"], hex.EncodeToString(d.Payload))}
	}
	return &relay.Reject{Reason: "the suite has no word " + word}
}

func either(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func milliseconds(text string) (time.Duration, error) {
	count, err := strconv.Atoi(text)
	return time.Duration(count) * time.Millisecond, err
}

func run(ctx context.Context, words []string) error {
	target := os.Getenv("RELAY_TARGET")
	switch {
	case len(words) == 3 && words[0] == "handle":
		places, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		return relay.Serve(ctx, relay.Stream{Target: target, Topics: words[1:2], Places: places}, handle)
	case len(words) == 4 && words[0] == "push":
		return relay.ServePush(ctx, relay.Push{Address: words[2], Topics: words[1:2]}, handle)
	case len(words) == 5 && words[0] == "schedule":
		delay, err := milliseconds(words[3])
		if err != nil {
			return err
		}
		producer, err := relay.NewProducer(target, nil, 30*time.Second)
		if err != nil {
			return err
		}
		defer producer.Close()
		_, err = producer.Schedule(ctx, &relayv1.TimerSpec{
			Topic: words[1], TimerId: words[2], Delay: durationpb.New(delay), Payload: []byte(words[4]),
		})
		return err
	}
	return errors.New("usage: conformance handle TOPIC PLACES | push TOPIC ADDRESS PLACES | schedule TOPIC ID DELAY_MS PAYLOAD")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
