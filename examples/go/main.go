// Command reminders is an application on Relay: it sets reminders, cancels them, and prints them as they fall due.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"reminders/relay"
	relayv1 "reminders/stubs/relay/v1"
)

const usage = `usage: reminders stream TOPIC | push ADDRESS TOPIC | schedule TOPIC ID DELAY TEXT | cancel TOPIC ID
DELAY is such as 1500ms or 72h. RELAY_TARGET names the relay; without it, 127.0.0.1:7451.`

// remind may be called twice for one timer: OccurrenceId is the key that makes the work idempotent.
func remind(_ context.Context, d *relay.Delivery) error {
	fmt.Printf("%s/%s: %s (attempt %d)\n", d.Topic, d.TimerId, d.Payload, d.Attempt)
	switch {
	case string(d.Payload) == "flaky" && d.Attempt == 1:
		pause := 500 * time.Millisecond
		return &relay.Nack{Reason: "not today", Pause: &pause}
	case string(d.Payload) == "wrong":
		return &relay.Reject{Reason: "nobody can do this"}
	}
	return nil
}

func target() string {
	if target := os.Getenv("RELAY_TARGET"); target != "" {
		return target
	}
	return "127.0.0.1:7451"
}

func run(ctx context.Context, words []string) error {
	switch {
	case len(words) == 2 && words[0] == "stream":
		return relay.Serve(ctx, relay.Stream{Target: target(), Topics: words[1:], Places: 100}, remind)
	case len(words) == 3 && words[0] == "push":
		return relay.ServePush(ctx, relay.Push{Address: words[1], Topics: words[2:]}, remind)
	case len(words) == 5 && words[0] == "schedule":
		return schedule(ctx, words[1], words[2], words[3], words[4])
	case len(words) == 3 && words[0] == "cancel":
		return cancel(ctx, words[1], words[2])
	}
	fmt.Fprintln(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func schedule(ctx context.Context, topic, id, delay, text string) error {
	length, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	producer, err := relay.NewProducer(target(), nil, 10*time.Second)
	if err != nil {
		return err
	}
	defer producer.Close()
	answer, err := producer.Schedule(ctx, &relayv1.TimerSpec{
		Topic: topic, TimerId: id, Delay: durationpb.New(length), Payload: []byte(text),
		ContentType: "text/plain; charset=utf-8",
	})
	if err == nil {
		fmt.Printf("%s/%s is due at %s\n", topic, id, answer.Timer.DueTime.AsTime().Format(time.RFC3339Nano))
	}
	return err
}

func cancel(ctx context.Context, topic, id string) error {
	producer, err := relay.NewProducer(target(), nil, 10*time.Second)
	if err != nil {
		return err
	}
	defer producer.Close()
	was, err := producer.Cancel(ctx, topic, id)
	if err == nil {
		fmt.Println(map[bool]string{true: "cancelled", false: "there is no such timer"}[was])
	}
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
