// Objects, strings, maps, buffers outside the heap and compression in four threads, and a rest.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Random;
import java.util.zip.Deflater;

public class Job {
    static long work(int seed) {
        var random = new Random(seed);
        var map = new HashMap<String, ArrayList<Integer>>();
        for (int i = 0; i < 400_000; i++) {
            map.computeIfAbsent(Integer.toString(random.nextInt(50_000), 36), key -> new ArrayList<>()).add(i);
        }
        long sum = map.size();
        var buffers = new ByteBuffer[64];
        for (int i = 0; i < 3_000; i++) {
            int place = random.nextInt(buffers.length);
            buffers[place] = ByteBuffer.allocateDirect(1_000 + random.nextInt(100_000));
            buffers[place].put(0, (byte) i);
        }
        for (var buffer : buffers) sum += buffer == null ? 0 : buffer.capacity() + buffer.get(0);
        byte[] input = new byte[1 << 20];
        for (int i = 0; i < input.length; i++) input[i] = (byte) (random.nextInt(16) + 'a');
        byte[] output = new byte[1 << 21];
        for (int i = 0; i < 8; i++) {
            var deflater = new Deflater();
            deflater.setInput(input);
            deflater.finish();
            sum += deflater.deflate(output);
            deflater.end();
        }
        return sum;
    }

    public static void main(String[] words) throws Exception {
        var sums = new long[4];
        var threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            int number = i;
            threads[i] = new Thread(() -> sums[number] = work(number + 1));
            threads[i].start();
        }
        for (var thread : threads) thread.join();
        for (long sum : sums) System.out.println(sum);
        System.out.println("ready");
        System.in.read();
    }
}
