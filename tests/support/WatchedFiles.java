package tests;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.function.Consumer;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Spark's files, which tell the tests of each write before it is made: see crash_points.py. */
public class WatchedFiles extends LocalFileSystem {
  private static volatile Consumer told = null;

  public WatchedFiles() {
    super(new Raw());
  }

  /** Tell somebody of all writes from now on; null: nobody. */
  public static void watch(Consumer consumer) {
    told = consumer;
  }

  static void tell(String what, Path path) {
    Consumer consumer = told;
    if (consumer != null) {
      consumer.accept(what + " " + path.toUri().getPath());
    }
  }

  /** For those that ask Hadoop for a FileContext, as Delta does for its log. */
  public static class Context extends DelegateToFileSystem {
    public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
      super(uri, new Raw(), conf, "file", false);
    }

    public int getUriDefaultPort() {
      return -1;
    }

    public FsServerDefaults getServerDefaults(Path path) throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    public boolean isValidName(String name) {
      return true;
    }
  }

  static class Raw extends RawLocalFileSystem {
    public FSDataOutputStream create(
        Path path, boolean overwrite, int size, short copies, long block, Progressable progress)
        throws IOException {
      tell("create", path);
      return super.create(path, overwrite, size, copies, block, progress);
    }

    public FSDataOutputStream create(
        Path path, FsPermission permission, boolean overwrite, int size, short copies, long block,
        Progressable progress) throws IOException {
      tell("create", path);
      return super.create(path, permission, overwrite, size, copies, block, progress);
    }

    public FSDataOutputStream append(Path path, int size, Progressable progress)
        throws IOException {
      tell("append", path);
      return super.append(path, size, progress);
    }

    public boolean rename(Path from, Path to) throws IOException {
      tell("rename", from);
      tell("rename", to);
      return super.rename(from, to);
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
      tell("delete", path);
      return super.delete(path, recursive);
    }
  }
}
