package relay;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.UUID;

import io.delta.storage.HadoopFileSystemLogStore;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSBuilder;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import software.amazon.awssdk.awscore.exception.AwsServiceException;

/**
 * The log store of Delta Lake for S3: a file is created only where none is, by a conditional write, so that
 * two drivers never write one version of a table. See docs/decisions/0117-two-drivers-on-s3.md.
 *
 * `relay pipeline jars --s3` compiles this file by Janino, which knows neither lambdas nor most of generics.
 */
public class S3LogStore extends HadoopFileSystemLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final String ID = "relay-write";
    private static final int TRIES = 10;
    private static final long PAUSE = 100; // milliseconds

    public S3LogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        FileSystem files = path.getFileSystem(conf);
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        if (overwrite.booleanValue()) {
            put(files.create(path, true), lines.toByteArray());
        } else if (!create(files, path, lines.toByteArray())) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return Boolean.FALSE; // an object appears whole
    }

    /**
     * Creates a file with all of its bytes; false if there is one. Throws S3A's error if S3 neither created
     * the file nor refused it; the file may be there then, unless the error is one of access.
     *
     * The race: S3 has created our file, its answer is lost on the way, S3A asks again, and is refused because
     * of our own file. So the file carries the id of its write, and whoever is refused looks for that. And S3
     * answers 409 while another creation is under way, which may yet fail: that is no refusal, so we ask again.
     */
    public static boolean create(FileSystem files, Path path, byte[] bytes) throws IOException {
        String id = UUID.randomUUID().toString();
        for (int tried = 1;; tried++) {
            FSBuilder builder = files.createFile(path).recursive().overwrite(false);
            builder = builder.must(CONDITIONAL, true).must("fs.s3a.create.header." + ID, id);
            try {
                put((FSDataOutputStream) builder.build(), bytes);
                return true;
            } catch (IOException failure) {
                int status = statusOf(failure);
                try {
                    byte[] found = files.getXAttr(path, "header." + ID);
                    if (found != null && id.equals(new String(found, StandardCharsets.UTF_8))) {
                        return true;
                    }
                } catch (FileNotFoundException none) {
                    // Refused by a file that has gone since, or not created at all.
                } catch (IOException unknown) {
                    failure.addSuppressed(unknown);
                    throw failure;
                }
                if (status == 412) {
                    return false;
                }
                if (status != 409 || tried == TRIES) {
                    throw failure;
                }
            }
            pause(tried);
        }
    }

    private static void put(FSDataOutputStream stream, byte[] bytes) throws IOException {
        try {
            stream.write(bytes);
        } catch (IOException failure) {
            stream.abort(); // since closing would create the file from what was written
            throw failure;
        }
        stream.close();
    }

    private static int statusOf(IOException failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            if (each instanceof AwsServiceException) {
                return ((AwsServiceException) each).statusCode();
            }
        }
        return 0;
    }

    private static void pause(int tried) throws IOException {
        try {
            Thread.sleep(PAUSE * tried);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while S3 was busy with another creation");
        }
    }
}
