package spandrel;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Redis for YCSB, as a record is a hash: {@code HSET} and {@code HGETALL} over the server's unix socket,
 * which the property {@code redis.socket} names. What else YCSB can ask for its workload does not.
 */
public final class RedisBinding extends DB {
  private SocketChannel channel;
  private InputStream in;
  private OutputStream out;

  @Override
  public void init() throws DBException {
    try {
      channel = SocketChannel.open(UnixDomainSocketAddress.of(getProperties().getProperty("redis.socket")));
      in = new BufferedInputStream(Channels.newInputStream(channel), 1 << 16);
      out = new BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16);
    } catch (IOException why) {
      throw new DBException(why);
    }
  }

  @Override
  public void cleanup() throws DBException {
    try {
      channel.close();
    } catch (IOException why) {
      throw new DBException(why);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    List<byte[]> words = new ArrayList<>();
    words.add(bytes("HSET"));
    words.add(bytes(key));
    values.forEach((name, value) -> {
      words.add(bytes(name));
      words.add(value.toArray());
    });
    return ask(words, null);
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return ask(List.of(bytes("HGETALL"), bytes(key)), result);
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return insert(table, key, values);
  }

  @Override
  public Status scan(String table, String key, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  @Override
  public Status delete(String table, String key) {
    return ask(List.of(bytes("DEL"), bytes(key)), null);
  }

  private Status ask(List<byte[]> words, Map<String, ByteIterator> result) {
    try {
      out.write(bytes("*" + words.size() + "\r\n"));
      for (byte[] word : words) {
        out.write(bytes("$" + word.length + "\r\n"));
        out.write(word);
        out.write('\r');
        out.write('\n');
      }
      out.flush();
      return answer(result);
    } catch (IOException why) {
      return Status.ERROR;
    }
  }

  private Status answer(Map<String, ByteIterator> result) throws IOException {
    String head = line();
    switch (head.charAt(0)) {
      case ':':
      case '+':
        return Status.OK;
      case '*':
        int parts = Integer.parseInt(head.substring(1));
        for (int at = 0; at < parts; at += 2) {
          String name = new String(bulk(), StandardCharsets.UTF_8);
          byte[] value = bulk();
          if (result != null) {
            result.put(name, new ByteArrayByteIterator(value));
          }
        }
        return parts > 0 ? Status.OK : Status.NOT_FOUND;
      default:
        return Status.ERROR;
    }
  }

  private byte[] bulk() throws IOException {
    byte[] bytes = in.readNBytes(Integer.parseInt(line().substring(1)));
    in.readNBytes(2);
    return bytes;
  }

  private String line() throws IOException {
    StringBuilder line = new StringBuilder();
    for (int next = in.read(); next != '\r'; next = in.read()) {
      if (next < 0) {
        throw new IOException("the server has closed the connection");
      }
      line.append((char) next);
    }
    in.read();
    return line.toString();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
