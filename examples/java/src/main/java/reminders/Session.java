package reminders;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import relay.v1.DeliverRequest;
import relay.v1.DeliverResponse;
import relay.v1.Delivery;
import relay.v1.Drain;
import relay.v1.Open;
import relay.v1.Outcome;
import relay.v1.Problem;
import relay.v1.ProblemReason;
import relay.v1.Settle;
import relay.v1.Settlement;

/** One stream, from its Open to its end. Its fields are guarded by its monitor. */
final class Session implements ClientResponseObserver<DeliverRequest, DeliverResponse> {
  /** The most receipts, and the most outcomes, that go into one message. */
  private static final int FRAME = 500;

  private static final int FRAME_HEADER = 5; // bytes that gRPC puts before a message

  /** Completed with the status that the stream ends with. */
  final CompletableFuture<Status> ended = new CompletableFuture<>();

  private final Wire wire;
  private final ExecutorService threads;
  private final List<String> topics;
  private final int places;
  private final Handler handler;
  private ClientCallStreamObserver<DeliverRequest> requests;
  private long sent; // bytes; the writer's own

  private boolean opened;
  private boolean draining;
  private boolean tell;
  private final Deque<Delivery> waiting = new ArrayDeque<>(); // no place is free for them
  private final Map<ByteString, Running> running = new HashMap<>(); // what has a place, and no outcome that is queued
  private final Deque<Running> starting = new ArrayDeque<>(); // whose receipts are to be written
  private final Deque<Settlement> settlements = new ArrayDeque<>();

  Session(Wire wire, ExecutorService threads, List<String> topics, int places, Handler handler) {
    this.wire = wire;
    this.threads = threads;
    this.topics = topics;
    this.places = places;
    this.handler = handler;
  }

  private final class Running implements Handler.Lease {
    private final Delivery delivery;
    private volatile boolean lost;

    Running(Delivery delivery) {
      this.delivery = delivery;
    }

    @Override
    public void extend() {
      settle(Settlement.newBuilder().setToken(delivery.getToken()).setOutcome(Outcome.OUTCOME_EXTEND).build());
    }

    @Override
    public boolean isLost() {
      return lost || ended.isDone();
    }
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<DeliverRequest> requests) {
    this.requests = requests;
  }

  /** Says Open; from then on a thread of its own writes. */
  void open() {
    Open open = Open.newBuilder().addAllTopics(topics).setMaxOutstanding(places).build();
    send(DeliverRequest.newBuilder().setOpen(open).build());
    threads.execute(this::write);
  }

  synchronized boolean isOpened() {
    return opened;
  }

  /** Takes what the relay says. Kinds of messages that are unknown come from a newer relay, and are left alone. */
  @Override
  public void onNext(DeliverResponse response) {
    switch (response.getMessageCase()) {
      case OPENED -> {
        synchronized (this) {
          opened = true;
        }
        System.err.println("the stream is open");
      }
      case DELIVERIES -> {
        synchronized (this) {
          if (!draining) { // what crosses a Drain on its way has no receipt, and costs no attempt
            waiting.addAll(response.getDeliveries().getDeliveriesList());
            begin();
          }
        }
      }
      case PROBLEMS -> response.getProblems().getProblemsList().forEach(this::report);
      case DRAIN -> drain(false);
      default -> {}
    }
  }

  @Override
  public void onError(Throwable failure) {
    over(Status.fromThrowable(failure));
  }

  @Override
  public void onCompleted() {
    over(Status.OK);
  }

  /** Begins nothing new. When all that runs is settled, the writer ends our side. */
  synchronized void drain(boolean tell) {
    if (draining) return;
    draining = true;
    this.tell = tell;
    waiting.clear();
    notifyAll();
  }

  /** Ends the stream at once. */
  void abandon() {
    requests.cancel("no time is left", null);
  }

  /** Gives free places to what waits; the monitor is held. Their handlers start once the receipts are written. */
  private void begin() {
    while (running.size() < places && !waiting.isEmpty()) {
      Running one = new Running(waiting.remove());
      running.put(one.delivery.getToken(), one);
      starting.add(one);
    }
    notifyAll();
  }

  private void handle(Running one) {
    Settlement settlement = Outcomes.settle(handler, one.delivery, one);
    synchronized (this) {
      running.remove(one.delivery.getToken());
      settlements.add(settlement);
      begin();
    }
  }

  private synchronized void settle(Settlement settlement) {
    settlements.add(settlement);
    notifyAll();
  }

  private synchronized void report(Problem problem) {
    Running one = running.get(problem.getToken());
    String name = one == null ? "an ended delivery" : one.delivery.getTimerId();
    System.err.printf("the relay took no outcome of %s: %s%n", name, problem.getMessage());
    ProblemReason reason = problem.getReason();
    boolean isLost = reason == ProblemReason.PROBLEM_REASON_STALE || reason == ProblemReason.PROBLEM_REASON_GONE;
    if (one != null && isLost) one.lost = true; // its outcome is sent all the same: until then it keeps its place
  }

  /** Ends the writer. Handlers that run have lost their leases. */
  private void over(Status status) {
    ended.complete(status);
    wire.close();
    synchronized (this) {
      notifyAll();
    }
  }

  /** The one writer. Receipts and outcomes that come while a write is under way go into the next message. */
  private void write() {
    try {
      while (true) {
        List<Running> begun = new ArrayList<>();
        DeliverRequest said = next(begun);
        if (ended.isDone()) return;
        if (said == null) {
          requests.onCompleted();
          return;
        }
        send(said);
        if (!begun.isEmpty() && !wire.await(sent)) return; // a handler whose receipt is lost must not start
        for (Running one : begun) threads.execute(() -> handle(one));
      }
    } catch (InterruptedException | IllegalStateException over) { // gRPC refuses messages once the stream has ended
      Thread.currentThread().interrupt();
    }
  }

  /** Waits for what is to be written, and for whose receipts are in it; null is the end of our side, or of the stream. */
  private synchronized DeliverRequest next(List<Running> begun) throws InterruptedException {
    while (!ended.isDone() && !tell && isNothingToSay() && !(draining && running.isEmpty())) wait();
    if (ended.isDone()) return null;
    if (tell) {
      tell = false;
      return DeliverRequest.newBuilder().setDrain(Drain.getDefaultInstance()).build();
    }
    if (isNothingToSay()) return null;
    Settle.Builder settle = Settle.newBuilder();
    while (begun.size() < FRAME && !starting.isEmpty()) {
      Running one = starting.remove();
      begun.add(one);
      settle.addReceived(one.delivery.getToken());
    }
    while (settle.getSettlementsCount() < FRAME && !settlements.isEmpty()) settle.addSettlements(settlements.remove());
    return DeliverRequest.newBuilder().setSettle(settle).build();
  }

  private boolean isNothingToSay() {
    return starting.isEmpty() && settlements.isEmpty();
  }

  private void send(DeliverRequest message) {
    sent += FRAME_HEADER + message.getSerializedSize();
    requests.onNext(message);
  }
}
