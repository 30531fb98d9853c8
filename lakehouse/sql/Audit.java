package lakehouse;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hive.service.auth.TSetIpAddressProcessor;
import org.apache.hive.service.cli.OperationHandle;
import org.apache.hive.service.cli.operation.Operation;

/**
 * Notes who has run which statement, when, and with what outcome. `audit.py` takes the notes, hides
 * the values in the statements, and writes them to a table.
 */
public class Audit {
    private static final int MOST = 100000;
    private static final int LONGEST = 20000; // `audit.py` keeps less
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map running = new ConcurrentHashMap(); // by handle
    private final LinkedBlockingQueue ended = new LinkedBlockingQueue(MOST);

    void begun(Access.User user, String statement, long begun, Operation operation) {
        Note note = new Note(user.name, user.role, statement, begun);
        note.operation = operation;
        running.put(operation.getHandle(), note);
    }

    /** A statement that has failed before its call returned. */
    void failed(Access.User user, String statement, long begun, String message) {
        Note note = new Note(user.name, user.role, statement, begun);
        note.message = String.valueOf(message);
        end(note);
    }

    /** A statement that was refused before it was run. */
    void refused(String user, String statement) {
        Note note = new Note(String.valueOf(user), "", statement, System.currentTimeMillis());
        note.message = "AccessDenied";
        end(note);
    }

    /** A statement that did not come by a connection. `message`: why it failed, or null. */
    void ended(Access.User user, String statement, long begun, String address, String message,
            long rows) {
        Note note = new Note(user.name, user.role, statement, begun);
        note.values.put("address", address);
        note.message = message;
        note.rows = rows;
        end(note);
    }

    void fetched(OperationHandle handle, long rows) {
        Note note = (Note) running.get(handle);
        if (note != null) {
            note.rows = Math.max(note.rows, rows);
        }
    }

    /** Notes the end of statements that are no longer among the open ones; null: of all. */
    void noteClosed(Map open) {
        Iterator all = new ArrayList(running.keySet()).iterator();
        while (all.hasNext()) {
            Object handle = all.next();
            Note note = (Note) running.get(handle);
            if (note.done == 0 && note.operation.getStatus().getState().isTerminal()) {
                note.done = System.currentTimeMillis();
            }
            if (open == null || !open.containsKey(handle)) {
                running.remove(handle);
                Throwable error = note.operation.getStatus().getOperationException();
                note.message = error == null ? null : String.valueOf(error.getMessage());
                end(note);
            }
        }
    }

    List take() {
        List found = new ArrayList();
        ended.drainTo(found);
        return found;
    }

    private void end(Note note) {
        if (note.done == 0) {
            note.done = System.currentTimeMillis();
        }
        try {
            String text = JSON.writeValueAsString(note.shown());
            while (!ended.offer(text)) { // the oldest go, so that a flood cannot fill the memory
                ended.poll();
            }
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    private static class Note {
        private final Map values = new HashMap();
        private final long begun;
        Operation operation;
        String message;
        long rows;
        long done;

        Note(String user, String role, String statement, long begun) {
            this.begun = begun;
            values.put("user", user);
            values.put("role", role);
            // A flood of long statements cannot fill the memory either.
            values.put("statement", statement.length() <= LONGEST ? statement
                : statement.substring(0, LONGEST));
            values.put("address", TSetIpAddressProcessor.getUserIpAddress());
        }

        Map shown() {
            values.put("begun_ms", new Long(begun));
            values.put("took_ms", new Long(done - begun));
            values.put("rows", new Long(rows));
            values.put("message", message);
            return values;
        }
    }
}
