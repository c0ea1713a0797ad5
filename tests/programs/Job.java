import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.*;

/** Threads, direct buffers, deflaters (memory from malloc), collections, a refused allocation. */
public class Job {
    static long work(int n, int rounds) throws DataFormatException {
        Random random = new Random(n);
        List<ByteBuffer> buffers = new ArrayList<>();
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1 + random.nextInt(i % 20 == 0 ? 2_000_000 : 20_000));
            for (int k = 0; k < buffer.capacity(); k += 101) buffer.put(k, (byte) (k * n));
            buffers.add(buffer);
            if (buffers.size() > 20) {
                ByteBuffer old = buffers.remove(random.nextInt(20));
                for (int k = 0; k < old.capacity(); k += 101) sum = sum * 31 + old.get(k);
            }
            byte[] data = new byte[5000];
            random.nextBytes(data);
            Arrays.fill(data, 1000, 4000, (byte) i);
            Deflater deflater = new Deflater(1 + i % 9);
            deflater.setInput(data);
            deflater.finish();
            byte[] packed = new byte[10000];
            int length = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            byte[] back = new byte[5000];
            if (inflater.inflate(back) != 5000 || !Arrays.equals(back, data)) throw new IllegalStateException("inflate");
            inflater.end();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = arguments.length > 0 ? 60 : 400;
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> results = new ArrayList<>();
        for (int n = 1; n <= 12; n++) {
            int number = n;
            results.add(pool.submit(() -> work(number, rounds)));
        }
        for (Future<Long> result : results) System.out.println(result.get());
        pool.shutdown();
        Thread[] threads = new Thread[200];
        ConcurrentHashMap<Integer, String> map = new ConcurrentHashMap<>();
        for (int i = 0; i < threads.length; i++) {
            int n = i;
            threads[i] = new Thread(() -> map.put(n, "x".repeat(n)));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(map.values().stream().mapToInt(String::length).sum());
        try {
            List<byte[]> hog = new ArrayList<>();
            while (true) hog.add(new byte[64 << 20]);
        } catch (OutOfMemoryError error) {
            System.out.println("refused");
        }
        System.exit(4);
    }
}
