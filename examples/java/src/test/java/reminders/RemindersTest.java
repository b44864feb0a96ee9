package reminders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.google.protobuf.ByteString;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import relay.v1.Delivery;
import relay.v1.Outcome;
import relay.v1.Reschedule;
import relay.v1.Settlement;

class RemindersTest {
  private static final ByteString TOKEN = ByteString.copyFrom(new byte[] {-1, 0});
  private static final Delivery DELIVERY =
      Delivery.newBuilder().setTopic("t").setTimerId("a").setToken(TOKEN).build();

  private static Settlement.Builder settlement(Outcome outcome) {
    return Settlement.newBuilder().setToken(TOKEN).setOutcome(outcome);
  }

  /** A handler's end is the outcome, and an exception that it did not expect is named by its class only. */
  @Test
  void outcomes() {
    Duration pause = Duration.ofMillis(1_500);
    com.google.protobuf.Duration inMessage =
        com.google.protobuf.Duration.newBuilder().setSeconds(1).setNanos(500_000_000).build();
    Map<Throwable, Settlement.Builder> wanted = new LinkedHashMap<>();
    wanted.put(new IllegalStateException("secret"), settlement(Outcome.OUTCOME_NACK).setReason("IllegalStateException"));
    wanted.put(new StackOverflowError(), settlement(Outcome.OUTCOME_NACK).setReason("StackOverflowError"));
    wanted.put(
        new Handler.Nack("busy", pause),
        settlement(Outcome.OUTCOME_NACK).setReason("busy").setRetryAfter(inMessage));
    wanted.put(Handler.Nack.useless("no"), settlement(Outcome.OUTCOME_NACK).setReason("no").setRetryable(false));
    wanted.put(new Handler.Reject("nobody"), settlement(Outcome.OUTCOME_REJECT).setReason("nobody"));
    wanted.put(
        new Handler.Reschedule(pause),
        settlement(Outcome.OUTCOME_RESCHEDULE).setReschedule(Reschedule.newBuilder().setDelay(inMessage)));
    wanted.forEach((end, want) -> assertEquals(want.build(), Outcomes.settle(ending(end), DELIVERY, null)));
    assertEquals(settlement(Outcome.OUTCOME_ACK).build(), Outcomes.settle((delivery, lease) -> {}, DELIVERY, null));
  }

  private static Handler ending(Throwable end) {
    return (delivery, lease) -> {
      if (end instanceof Error error) throw error;
      throw (Exception) end;
    };
  }

  /** The bytes of DATA frames are counted, however they are cut, and those of other frames are not. */
  @Test
  void theWireCountsMessages() {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    all.writeBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
    int[][] frames = {{4, 6}, {0, 300}, {8, 4}, {0, 0}, {0, 7}};
    for (int[] frame : frames) {
      all.writeBytes(new byte[] {0, (byte) (frame[1] >> 8), (byte) frame[1], (byte) frame[0], 0, 0, 0, 0, 1});
      all.writeBytes(new byte[frame[1]]);
    }
    byte[] bytes = all.toByteArray();
    for (int size = 1; size <= bytes.length; size++) {
      Wire wire = new Wire();
      for (int at = 0; at < bytes.length; at += size) wire.count(bytes, at, Math.min(size, bytes.length - at));
      assertEquals(307, wire.written(), "in pieces of " + size + " bytes");
    }
  }

  @Test
  void aWireThatEndsWakesWhoWaits() throws InterruptedException {
    Wire wire = new Wire();
    Thread ends = new Thread(wire::close);
    ends.start();
    assertFalse(wire.await(1));
    ends.join();
  }
}
