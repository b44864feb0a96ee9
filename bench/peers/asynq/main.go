// asynq with delayed tasks. By default as many tasks run at a time as there are CPUs, and the scheduled ones are
// looked at every 5 seconds. Takes and says what bench/peers/__init__.py tells.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	pause    = time.Second // from storing a timer until it is due
	together = 50
)

type argument struct {
	Work          string  `json:"work"`
	URL           string  `json:"url"`
	Timers        int     `json:"timers"`
	Payload       int     `json:"payload"`
	Concurrency   int     `json:"concurrency"`
	CheckInterval float64 `json:"check_interval"` // seconds
}

type timer struct {
	Number  int       `json:"number"`
	Due     time.Time `json:"due"`
	Content string    `json:"content"`
}

// tally counts what was handled.
type tally struct {
	mutex        sync.Mutex
	timers       int
	calls        int
	seen         map[int]bool
	late         []float64 // milliseconds
	began, ended time.Time
	cpu          float64
	done         chan struct{}
}

func (t *tally) handle(_ context.Context, task *asynq.Task) error {
	var handled timer
	if err := json.Unmarshal(task.Payload(), &handled); err != nil {
		return err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.calls == 0 {
		t.began, t.cpu = time.Now(), cpu()
	}
	t.calls++
	t.late = append(t.late, float64(time.Since(handled.Due).Microseconds())/1000)
	t.seen[handled.Number] = true
	if len(t.seen) == t.timers && t.ended.IsZero() {
		t.ended, t.cpu = time.Now(), cpu()-t.cpu
		close(t.done)
	}
	return nil
}

func (t *tally) count() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.calls
}

func (t *tally) report(work string) {
	lateness := map[string]float64{}
	if work == "idle" {
		slices.Sort(t.late)
		for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1} {
			lateness[name] = t.late[max(0, int(math.Ceil(share*float64(len(t.late))))-1)]
		}
	}
	line, _ := json.Marshal(map[string]any{
		"seconds": t.ended.Sub(t.began).Seconds(), "handled": len(t.seen), "again": t.calls - len(t.seen),
		"cpu": t.cpu, "lateness": lateness,
	})
	fmt.Println(string(line))
}

// cpu is user and system time of this process, in seconds.
func cpu() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func store(client *asynq.Client, number int, content string) error {
	due := time.Now().Add(pause)
	payload, err := json.Marshal(timer{number, due, content})
	if err != nil {
		return err
	}
	_, err = client.Enqueue(asynq.NewTask("timer", payload), asynq.ProcessAt(due), asynq.TaskID(strconv.Itoa(number)))
	return err
}

func storeAll(client *asynq.Client, timers int, content string) error {
	var group sync.WaitGroup
	failures := make(chan error, together)
	for worker := range together {
		group.Go(func() {
			for number := worker; number < timers; number += together {
				if err := store(client, number, content); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

func oneByOne(client *asynq.Client, counted *tally, content string) error {
	for number := range counted.timers {
		time.Sleep(time.Duration(500+rand.Intn(1000)) * time.Millisecond)
		if err := store(client, number, content); err != nil {
			return err
		}
		for counted.count() <= number {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

func run(given argument) error {
	where, err := asynq.ParseRedisURI(given.URL)
	if err != nil {
		return err
	}
	client := asynq.NewClient(where)
	defer client.Close()
	content := strings.Repeat("p", given.Payload)
	counted := &tally{timers: given.Timers, seen: map[int]bool{}, done: make(chan struct{})}
	if given.Work == "drain" {
		if err := storeAll(client, given.Timers, content); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	server := asynq.NewServer(where, asynq.Config{
		Concurrency:              given.Concurrency,
		DelayedTaskCheckInterval: time.Duration(given.CheckInterval * float64(time.Second)),
		LogLevel:                 asynq.FatalLevel,
	})
	if err := server.Start(asynq.HandlerFunc(counted.handle)); err != nil {
		return err
	}
	if given.Work == "idle" {
		if err := oneByOne(client, counted, content); err != nil {
			return err
		}
	}
	<-counted.done
	server.Shutdown()
	counted.report(given.Work)
	return nil
}

func main() {
	var given argument
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	if err := run(given); err != nil {
		panic(err)
	}
}
