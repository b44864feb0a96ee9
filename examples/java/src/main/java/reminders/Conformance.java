package reminders;

import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import relay.v1.Delivery;
import relay.v1.TimerSpec;

/** This client as {@code relay conformance} wants it: it does what a delivery's payload says. */
public final class Conformance {
  private static final String TARGET = System.getenv("RELAY_TARGET");
  private static final Duration PATIENCE = Duration.ofSeconds(30);
  private static final Duration GRACE = Duration.ofSeconds(20);

  private Conformance() {}

  /** Does what the first word says, with what stands behind it. */
  private static void handle(Delivery delivery, Handler.Lease lease) throws Exception {
    String[] parts = delivery.getPayload().toStringUtf8().split(" ", 2);
    String rest = parts.length > 1 ? parts[1].strip() : "";
    switch (parts[0]) {
      case "ack" -> {}
      case "nack" -> throw new Handler.Nack("", rest.isEmpty() ? null : milliseconds(rest));
      case "final" -> throw Handler.Nack.useless("");
      case "error" -> throw new IllegalStateException(rest);
      case "reject" -> throw new Handler.Reject(rest);
      case "reschedule" -> throw new Handler.Reschedule(milliseconds(rest));
      case "extend" -> {
        lease.extend();
        hold(rest);
      }
      case "hold" -> hold(rest);
      case "freeze" -> freeze();
      case "tell" -> throw new Handler.Reject(told(delivery));
      default -> throw new Handler.Reject("the suite has no word " + parts[0]);
    }
  }

  private static void hold(String path) throws InterruptedException {
    while (!Files.exists(Path.of(path))) Thread.sleep(20);
  }

  private static void freeze() throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-STOP", Long.toString(ProcessHandle.current().pid())).start().waitFor();
  }

  private static String told(Delivery one) {
    Timestamp due = one.getDueTime();
    return String.join(
        "|",
        one.getTimerId(),
        Integer.toString(one.getAttempt()),
        Long.toString(due.getSeconds() * 1_000_000 + due.getNanos() / 1_000),
        one.getOccurrenceId(),
        one.getContentType(),
        one.getHeadersOrDefault("ort", ""),
        HexFormat.of().formatHex(one.getPayload().toByteArray()));
  }

  private static Duration milliseconds(String text) {
    return Duration.ofMillis(Long.parseLong(text));
  }

  private static void schedule(String topic, String id, String delay, String payload) throws InterruptedException {
    try (Producer producer = new Producer(TARGET, PATIENCE)) {
      producer.schedule(
          TimerSpec.newBuilder()
              .setTopic(topic)
              .setTimerId(id)
              .setDelay(Outcomes.duration(milliseconds(delay)))
              .setPayload(ByteString.copyFromUtf8(payload))
              .build());
    }
  }

  public static void main(String[] words) throws IOException, InterruptedException {
    Stop stop = new Stop();
    int code = 1;
    try {
      switch (words[0]) {
        case "handle" -> {
          int places = Integer.parseInt(words[2]);
          new Stream(TARGET, List.of(words[1]), places, GRACE, Conformance::handle).serve(stop.asked);
        }
        case "push" -> new Push(List.of(words[1]), Conformance::handle).serve(Push.address(words[2]), GRACE, stop.asked);
        default -> schedule(words[1], words[2], words[3], words[4]);
      }
      code = 0;
    } catch (StatusRuntimeException refused) {
      System.err.println(refused.getStatus());
    } finally {
      stop.exit(code);
    }
  }
}
