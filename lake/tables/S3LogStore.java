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
 * Lets S3 decide who makes a version of a table (If-None-Match), as delta-rs does. Delta's own
 * class looks whether it is there and then writes it, so it would replace what another process, or
 * delta-rs in this one, commits in between. `log_store.py` compiles it.
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
            // An answer may have been lost and the request sent again; a commit names its own
            // transaction, so the same bytes are this one.
            if (!Arrays.equals(lines.toByteArray(), read(files, path))) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static void create(FileSystem files, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.recursive();
        builder.overwrite(true); // else it would look first as well
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
