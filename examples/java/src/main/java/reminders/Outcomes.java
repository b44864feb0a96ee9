package reminders;

import com.google.protobuf.Duration;
import relay.v1.Delivery;
import relay.v1.Outcome;
import relay.v1.Reschedule;
import relay.v1.Settlement;

/** A handler's end, as the outcome that the relay is told. */
final class Outcomes {
  private Outcomes() {}

  static Settlement settle(Handler handler, Delivery delivery, Handler.Lease lease) {
    return outcome(handler, delivery, lease).setToken(delivery.getToken()).build();
  }

  private static Settlement.Builder outcome(Handler handler, Delivery delivery, Handler.Lease lease) {
    Settlement.Builder settlement = Settlement.newBuilder();
    try {
      handler.handle(delivery, lease);
      return settlement.setOutcome(Outcome.OUTCOME_ACK);
    } catch (Handler.Nack nack) {
      if (nack.pause != null) settlement.setRetryAfter(duration(nack.pause));
      if (nack.isFinal) settlement.setRetryable(false);
      return settlement.setOutcome(Outcome.OUTCOME_NACK).setReason(nack.getMessage());
    } catch (Handler.Reject reject) {
      return settlement.setOutcome(Outcome.OUTCOME_REJECT).setReason(reject.getMessage());
    } catch (Handler.Reschedule again) {
      return settlement
          .setOutcome(Outcome.OUTCOME_RESCHEDULE)
          .setReschedule(Reschedule.newBuilder().setDelay(duration(again.delay)));
    } catch (Throwable failure) { // its message may quote the payload
      String name = failure.getClass().getSimpleName();
      System.err.printf("%s/%s failed: %s%n", delivery.getTopic(), delivery.getTimerId(), name);
      return settlement.setOutcome(Outcome.OUTCOME_NACK).setReason(name);
    }
  }

  static Duration duration(java.time.Duration length) {
    return Duration.newBuilder().setSeconds(length.getSeconds()).setNanos(length.getNano()).build();
  }
}
