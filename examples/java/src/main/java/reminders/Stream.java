package reminders;

import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.okhttp.OkHttpChannelBuilder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import relay.v1.DeliveryServiceGrpc;

/** Delivery by stream: the application dials the relay. */
public final class Stream {
  private static final long FIRST_PAUSE = 100; // milliseconds
  private static final long LONGEST_PAUSE = 5_000;
  private static final long END_PATIENCE = 5_000;

  private final String target;
  private final List<String> topics;
  private final int places;
  private final Duration grace;
  private final Handler handler;
  private final ExecutorService threads = Executors.newCachedThreadPool(Stream::daemon);

  /** {@code places} is how many deliveries are held, and how many handlers run, at a time. */
  public Stream(String target, List<String> topics, int places, Duration grace, Handler handler) {
    this.target = target;
    this.topics = topics;
    this.places = places;
    this.grace = grace;
    this.handler = handler;
  }

  /**
   * Handles due timers until {@code stop} is asked for, and opens the stream again whenever the relay has gone. Then it
   * drains: running handlers have the grace.
   *
   * @throws StatusRuntimeException if the relay refuses the stream
   */
  public void serve(CountDownLatch stop) throws InterruptedException {
    long pause = FIRST_PAUSE;
    while (stop.getCount() > 0) {
      Wire wire = new Wire();
      Session session = new Session(wire, threads, topics, places, handler);
      Status status = serveOnce(session, wire, stop);
      if (isFatal(status)) throw status.asRuntimeException();
      if (stop.getCount() == 0) return;
      if (session.isOpened()) pause = FIRST_PAUSE;
      System.err.printf("the stream has ended (%s), opening it again%n", status.getCode());
      stop.await((long) (pause * ThreadLocalRandom.current().nextDouble(0.5, 1.0)), TimeUnit.MILLISECONDS);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  /** One stream, on a connection of its own: see {@link Wire}. */
  private Status serveOnce(Session session, Wire wire, CountDownLatch stop) throws InterruptedException {
    ManagedChannel channel =
        OkHttpChannelBuilder.forTarget(target, InsecureChannelCredentials.create())
            .socketFactory(wire)
            .maxInboundMessageSize(Integer.MAX_VALUE) // max_payload_bytes of the relay bounds it
            .build();
    try {
      DeliveryServiceGrpc.newStub(channel).deliver(session);
      session.open();
      Thread drains = new Thread(() -> drain(session, stop));
      drains.setDaemon(true);
      drains.start();
      Status status = session.ended.join();
      drains.interrupt();
      return status;
    } finally {
      channel.shutdownNow();
    }
  }

  private void drain(Session session, CountDownLatch stop) {
    try {
      stop.await();
      session.drain(true);
      Thread.sleep(grace.toMillis() + END_PATIENCE);
      session.abandon();
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  /** Whether another try is useless. */
  private static boolean isFatal(Status status) {
    return switch (status.getCode()) {
      case INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED -> true;
      default -> false;
    };
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }
}
