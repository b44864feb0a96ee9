package reminders;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import javax.net.SocketFactory;

/**
 * Knows how many bytes of messages a connection has written to the kernel.
 *
 * <p>A receipt has to be on its way before its handler starts, or a handler that kills the process is not counted.
 * {@code onNext} of grpc-java returns earlier: another thread writes. So this counts the bytes of HTTP/2 DATA frames as they
 * are written. The connection has one stream, so they are that stream's.
 */
final class Wire extends SocketFactory {
  private static final int HEADER = 9;

  private int preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".length(); // bytes of it that are still to come
  private final byte[] header = new byte[HEADER];
  private int known; // bytes of the header
  private int left; // bytes of the present frame
  private boolean isData;
  private long written;
  private boolean closed;

  /** Returns once this many bytes of messages are written; false if the connection ended before. */
  synchronized boolean await(long bytes) throws InterruptedException {
    while (written < bytes && !closed) wait();
    return written >= bytes;
  }

  synchronized void close() {
    closed = true;
    notifyAll();
  }

  synchronized long written() {
    return written;
  }

  synchronized void count(byte[] bytes, int offset, int length) {
    int end = offset + length;
    int skip = Math.min(preface, length);
    preface -= skip;
    for (int at = offset + skip; at < end; ) {
      if (left == 0) {
        header[known++] = bytes[at++];
        if (known == HEADER) {
          known = 0;
          left = (header[0] & 0xff) << 16 | (header[1] & 0xff) << 8 | header[2] & 0xff;
          isData = header[3] == 0;
        }
        continue;
      }
      int taken = Math.min(left, end - at);
      left -= taken;
      at += taken;
      if (isData) written += taken;
    }
    notifyAll();
  }

  private final class Counted extends Socket {
    @Override
    public OutputStream getOutputStream() throws IOException {
      return new FilterOutputStream(super.getOutputStream()) {
        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
          out.write(bytes, offset, length);
          count(bytes, offset, length);
        }

        @Override
        public void write(int each) throws IOException {
          write(new byte[] {(byte) each}, 0, 1);
        }
      };
    }
  }

  @Override
  public Socket createSocket() {
    return new Counted();
  }

  @Override
  public Socket createSocket(InetAddress host, int port) throws IOException {
    Socket socket = createSocket();
    socket.connect(new InetSocketAddress(host, port));
    return socket;
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    return createSocket(InetAddress.getByName(host), port);
  }

  @Override
  public Socket createSocket(String host, int port, InetAddress from, int fromPort) throws IOException {
    return createSocket(host, port);
  }

  @Override
  public Socket createSocket(InetAddress host, int port, InetAddress from, int fromPort) throws IOException {
    return createSocket(host, port);
  }
}
