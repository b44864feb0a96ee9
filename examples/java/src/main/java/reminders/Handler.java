package reminders;

import java.time.Duration;
import relay.v1.Delivery;

/**
 * Does the work. To return is ACK; {@link Nack}, {@link Reject} and {@link Reschedule} say what they are called; any other
 * exception is a NACK. A timer may come twice: its occurrence id is the same then.
 */
@FunctionalInterface
public interface Handler {
  void handle(Delivery delivery, Lease lease) throws Exception;

  /** What a handler may ask of the relay while it works. By push both do nothing. */
  interface Lease {
    /** Says that the work goes on, so that delivery_timeout starts over. */
    void extend();

    /** Whether the timer may be another's by now. */
    boolean isLost();
  }

  /** Fails a delivery: the timer comes again after the pause, or, where that is null, as the topic's retry policy says. */
  final class Nack extends Exception {
    final Duration pause;
    final boolean isFinal;

    public Nack(String reason, Duration pause) {
      this(reason, pause, false);
    }

    private Nack(String reason, Duration pause, boolean isFinal) {
      super(reason);
      this.pause = pause;
      this.isFinal = isFinal;
    }

    /** Another attempt is useless: the timer is dead. */
    public static Nack useless(String reason) {
      return new Nack(reason, null, true);
    }
  }

  /** Makes the timer dead for a reason. */
  final class Reject extends Exception {
    public Reject(String reason) {
      super(reason);
    }
  }

  /** Makes the timer due again, as a new occurrence. */
  final class Reschedule extends Exception {
    final Duration delay;

    public Reschedule(Duration delay) {
      super("in " + delay);
      this.delay = delay;
    }
  }
}
