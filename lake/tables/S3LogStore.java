package lakehouse;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Lets S3 decide who commits a version of a table (If-None-Match), as delta-rs does. Delta's own
 * class checks whether the version exists and then writes it. It would therefore replace a commit
 * that another process, or delta-rs in this process, makes in between. `log_store.py` compiles this
 * class.
 */
public class S3LogStore extends S3SingleDriverLogStore {
    public S3LogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write(((String) actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        FileSystem files = path.getFileSystem(configuration);
        try {
            create(files, path, lines.toByteArray());
        } catch (IOException error) {
            if (!files.exists(path)) {
                throw error;
            }
            // The response may have been lost and the request sent again. Each commit contains the
            // id of its transaction, so a file with the same bytes is this commit.
            if (!Arrays.equals(lines.toByteArray(), read(files, path))) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static void create(FileSystem files, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.recursive();
        builder.overwrite(true); // otherwise it would check first, too
        builder.must("fs.option.create.conditional.overwrite", true);
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        out.write(content);
        out.close();
    }

    private static byte[] read(FileSystem files, Path path) throws IOException {
        FSDataInputStream in = files.open(path);
        try {
            byte[] content = new byte[(int) files.getFileStatus(path).getLen()];
            in.readFully(0, content);
            return content;
        } finally {
            in.close();
        }
    }
}
