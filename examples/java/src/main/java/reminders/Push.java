package reminders;

import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.okhttp.OkHttpServerBuilder;
import io.grpc.protobuf.services.HealthStatusManager;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Collection;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import relay.v1.Settlement;
import relay.v1.TimerHandlerDeliverRequest;
import relay.v1.TimerHandlerDeliverResponse;
import relay.v1.TimerHandlerGrpc;

/** Delivery by push: the application serves TimerHandler, and the relay dials it. */
public final class Push {
  /** Milliseconds in which the relay learns that this application is NOT_SERVING. */
  private static final long HEARD = 200;

  private static final Metadata.Key<String> RECEIPT =
      Metadata.Key.of("relay-receipt", Metadata.ASCII_STRING_MARSHALLER);

  private final Set<String> topics;
  private final Handler handler;

  /** The topics are those that the handler is for. What is pushed of others waits until somebody handles it. */
  public Push(Collection<String> topics, Handler handler) {
    this.topics = Set.copyOf(topics);
    this.handler = handler;
  }

  /** Reads HOST:PORT. */
  public static InetSocketAddress address(String text) {
    int colon = text.lastIndexOf(':');
    return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
  }

  /**
   * Handles what a relay pushes to this address until {@code stop} is asked for. Then health says NOT_SERVING, and the calls
   * that run have the grace.
   */
  public void serve(InetSocketAddress address, Duration grace, CountDownLatch stop)
      throws IOException, InterruptedException {
    HealthStatusManager health = new HealthStatusManager();
    Server server =
        OkHttpServerBuilder.forPort(address, InsecureServerCredentials.create())
            .maxInboundMessageSize(Integer.MAX_VALUE) // max_payload_bytes of the relay bounds it
            .addService(health.getHealthService())
            .addService(ServerInterceptors.intercept(service(), new Receipts()))
            .build()
            .start();
    stop.await();
    health.enterTerminalState();
    Thread.sleep(HEARD);
    server.shutdown();
    if (!server.awaitTermination(grace.toMillis(), TimeUnit.MILLISECONDS)) server.shutdownNow();
  }

  /**
   * Deliver only; DeliverBatch is UNIMPLEMENTED. grpc-java sends the initial metadata of a unary call with its answer, and that
   * of a streaming one at once. On the wire they are the same.
   */
  private ServerServiceDefinition service() {
    MethodDescriptor<TimerHandlerDeliverRequest, TimerHandlerDeliverResponse> deliver =
        TimerHandlerGrpc.getDeliverMethod().toBuilder()
            .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
            .build();
    return ServerServiceDefinition.builder(TimerHandlerGrpc.SERVICE_NAME)
        .addMethod(deliver, ServerCalls.asyncServerStreamingCall(this::deliver))
        .build();
  }

  private void deliver(
      TimerHandlerDeliverRequest request, StreamObserver<TimerHandlerDeliverResponse> responses) {
    String topic = request.getDelivery().getTopic();
    if (!topics.contains(topic)) {
      String reason = "topic " + topic + " has no handler here";
      responses.onError(Status.UNIMPLEMENTED.withDescription(reason).asRuntimeException());
      return;
    }
    Settlement settlement = Outcomes.settle(handler, request.getDelivery(), new NoLease());
    TimerHandlerDeliverResponse.Builder response =
        TimerHandlerDeliverResponse.newBuilder()
            .setOutcome(settlement.getOutcome())
            .setReason(settlement.getReason());
    if (settlement.hasRetryAfter()) response.setRetryAfter(settlement.getRetryAfter());
    if (settlement.hasRetryable()) response.setRetryable(settlement.getRetryable());
    if (settlement.hasReschedule()) response.setReschedule(settlement.getReschedule());
    responses.onNext(response.build());
    responses.onCompleted();
  }

  /**
   * A delivery's receipt is the initial metadata, sent before its handler starts. A topic without a handler has none: it is
   * no attempt.
   */
  private final class Receipts implements ServerInterceptor {
    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
      ServerCall<Q, A> received =
          new SimpleForwardingServerCall<>(call) {
            @Override
            public void sendHeaders(Metadata sentAlready) {}
          };
      return new SimpleForwardingServerCallListener<>(next.startCall(received, headers)) {
        private boolean isKnown;

        @Override
        public void onMessage(Q request) {
          isKnown =
              request instanceof TimerHandlerDeliverRequest deliver
                  && topics.contains(deliver.getDelivery().getTopic());
          super.onMessage(request);
        }

        @Override
        public void onHalfClose() {
          if (isKnown) {
            Metadata receipt = new Metadata();
            receipt.put(RECEIPT, "1");
            call.sendHeaders(receipt);
          }
          super.onHalfClose();
        }
      };
    }
  }

  private record NoLease() implements Handler.Lease {
    @Override
    public void extend() {}

    @Override
    public boolean isLost() {
      return false;
    }
  }
}
