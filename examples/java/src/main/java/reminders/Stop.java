package reminders;

import java.util.concurrent.CountDownLatch;

/** SIGTERM and SIGINT: the JVM's end waits for the program's, and takes its exit code. */
final class Stop {
  final CountDownLatch asked = new CountDownLatch(1);
  private final CountDownLatch done = new CountDownLatch(1);
  private volatile int code;

  Stop() {
    Runtime.getRuntime().addShutdownHook(new Thread(this::onExit));
  }

  /** Ends the program. */
  void exit(int code) {
    this.code = code;
    done.countDown();
    System.exit(code);
  }

  private void onExit() {
    asked.countDown();
    try {
      done.await();
    } catch (InterruptedException never) {
      Thread.currentThread().interrupt();
    }
    System.out.flush();
    Runtime.getRuntime().halt(code); // else it is 143 after SIGTERM
  }
}
