package reminders;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.RetryInfo;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import relay.v1.CancelRequest;
import relay.v1.ScheduleRequest;
import relay.v1.ScheduleResponse;
import relay.v1.TimerServiceGrpc;
import relay.v1.TimerServiceGrpc.TimerServiceBlockingStub;
import relay.v1.TimerSpec;

/** Schedules and cancels timers; a call is tried for {@code timeout}. */
public final class Producer implements AutoCloseable {
  private static final long FIRST_TRY = TimeUnit.SECONDS.toNanos(1);
  private static final long FIRST_PAUSE = TimeUnit.MILLISECONDS.toNanos(50);
  private static final long LONGEST_PAUSE = TimeUnit.SECONDS.toNanos(2);

  private final ManagedChannel channel;
  private final TimerServiceBlockingStub timers;
  private final Duration timeout;

  public Producer(String target, Duration timeout) {
    channel = OkHttpChannelBuilder.forTarget(target, InsecureChannelCredentials.create()).build();
    timers = TimerServiceGrpc.newBlockingStub(channel);
    this.timeout = timeout;
  }

  /** Stores a timer, or replaces the one with its id. When it returns, the timer is stored. */
  public ScheduleResponse schedule(TimerSpec timer) throws InterruptedException {
    ScheduleRequest request = ScheduleRequest.newBuilder().setTimer(timer).build();
    return repeat(stub -> stub.schedule(request));
  }

  /** Removes a timer, even while it is being delivered. Returns whether there was one. */
  public boolean cancel(String topic, String timerId) throws InterruptedException {
    CancelRequest request = CancelRequest.newBuilder().setTopic(topic).setTimerId(timerId).build();
    return repeat(stub -> stub.cancel(request)).getCancelled();
  }

  @Override
  public void close() {
    channel.shutdownNow();
  }

  /**
   * Makes a call again while the relay or its Redis is away.
   *
   * <p>A try without an answer may act until its deadline, and would undo what came after it. So each try has a short
   * deadline, and what comes next, another try or an exception, waits for the relay's answer or for that deadline. The relay
   * counts it from when the call arrives: grpc-java writes it before it has a connection. So the wait begins with the failure.
   */
  private <A> A repeat(Function<TimerServiceBlockingStub, A> call) throws InterruptedException {
    long end = System.nanoTime() + timeout.toNanos();
    long life = FIRST_TRY;
    long pause = FIRST_PAUSE;
    while (true) {
      long mine = Math.min(life, end - System.nanoTime());
      try {
        return call.apply(timers.withDeadlineAfter(mine, TimeUnit.NANOSECONDS));
      } catch (StatusRuntimeException failure) {
        if (!mayPass(failure.getStatus())) throw failure;
        OptionalLong asked = retryDelay(failure);
        long wait = asked.isPresent() ? Math.max(asked.getAsLong(), pause) : mine;
        if (asked.isPresent() && System.nanoTime() + wait - end > 0) throw failure;
        TimeUnit.NANOSECONDS.sleep(wait);
        if (System.nanoTime() - end >= 0) throw failure;
        if (failure.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED) life *= 2; // the relay may only be slow
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
    }
  }

  private static boolean mayPass(Status status) {
    return switch (status.getCode()) {
      case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED -> true;
      default -> false;
    };
  }

  /** The pause for which a relay asks, in nanoseconds; empty if no relay has answered. */
  private static OptionalLong retryDelay(StatusRuntimeException failure) {
    com.google.rpc.Status status = StatusProto.fromThrowable(failure);
    for (Any detail : status.getDetailsList()) {
      if (!detail.is(RetryInfo.class)) continue;
      try {
        com.google.protobuf.Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
        return OptionalLong.of(TimeUnit.SECONDS.toNanos(delay.getSeconds()) + delay.getNanos());
      } catch (InvalidProtocolBufferException damaged) {
        return OptionalLong.empty();
      }
    }
    return OptionalLong.empty();
  }
}
