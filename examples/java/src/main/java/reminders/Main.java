package reminders;

import com.google.protobuf.ByteString;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import relay.v1.Delivery;
import relay.v1.TimerSpec;

/** An application on Relay: it sets reminders, cancels them, and prints them as they fall due. */
public final class Main {
  private static final String USAGE =
      """
      usage: reminders stream TOPIC | push HOST:PORT TOPIC | schedule TOPIC ID DELAY_MS TEXT | cancel TOPIC ID
      RELAY_TARGET names the relay; without it, 127.0.0.1:7451.""";

  private static final Duration GRACE = Duration.ofSeconds(20);
  private static final Duration TIMEOUT = Duration.ofSeconds(10);
  private static final String TARGET = System.getenv().getOrDefault("RELAY_TARGET", "127.0.0.1:7451");
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  private Main() {}

  /** May be called twice for one timer: its occurrence id is the key that makes the work idempotent. */
  private static void remind(Delivery delivery, Handler.Lease lease) throws Exception {
    String text = delivery.getPayload().toStringUtf8();
    OUT.printf("%s/%s: %s (attempt %d)%n", delivery.getTopic(), delivery.getTimerId(), text, delivery.getAttempt());
    if (text.equals("flaky") && delivery.getAttempt() == 1) throw new Handler.Nack("not today", Duration.ofMillis(500));
    if (text.equals("wrong")) throw new Handler.Reject("nobody can do this");
  }

  private static void schedule(String topic, String id, String delay, String text) throws InterruptedException {
    TimerSpec timer =
        TimerSpec.newBuilder()
            .setTopic(topic)
            .setTimerId(id)
            .setDelay(Outcomes.duration(Duration.ofMillis(Long.parseLong(delay))))
            .setPayload(ByteString.copyFromUtf8(text))
            .setContentType("text/plain; charset=utf-8")
            .build();
    try (Producer producer = new Producer(TARGET, TIMEOUT)) {
      var due = producer.schedule(timer).getTimer().getDueTime();
      OUT.printf("%s/%s is due at %s%n", topic, id, Instant.ofEpochSecond(due.getSeconds(), due.getNanos()));
    }
  }

  private static void cancel(String topic, String id) throws InterruptedException {
    try (Producer producer = new Producer(TARGET, TIMEOUT)) {
      OUT.println(producer.cancel(topic, id) ? "cancelled" : "there is no such timer");
    }
  }

  private static int run(List<String> words, Stop stop) throws IOException, InterruptedException {
    switch (String.join(" ", words.subList(0, Math.min(1, words.size()))) + "/" + words.size()) {
      case "stream/2" -> new Stream(TARGET, words.subList(1, 2), 100, GRACE, Main::remind).serve(stop.asked);
      case "push/3" -> new Push(words.subList(2, 3), Main::remind).serve(Push.address(words.get(1)), GRACE, stop.asked);
      case "schedule/5" -> schedule(words.get(1), words.get(2), words.get(3), words.get(4));
      case "cancel/3" -> cancel(words.get(1), words.get(2));
      default -> {
        System.err.println(USAGE);
        return 2;
      }
    }
    return 0;
  }

  public static void main(String[] words) throws IOException, InterruptedException {
    Stop stop = new Stop();
    int code = 1;
    try {
      code = run(List.of(words), stop);
    } catch (StatusRuntimeException refused) {
      System.err.println(refused.getStatus());
    } finally {
      stop.exit(code);
    }
  }
}
