import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/**
 * Spends known shares of each thread's time in known functions.
 *
 *     java Shares SECONDS WORKERS
 *
 * Prints `ready`, waits for a line, works, and prints for each kind of work `KIND MILLISECONDS`, by the threads' own
 * clocks. Each function `workKIND` is called by `part` only.
 */
public class Shares {
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    static volatile long sink;

    static long now() {
        return CLOCK.getCurrentThreadCpuTime();
    }

    /** Much work between two looks at the clock, which is a native method. */
    static void spin(double seconds) {
        long end = now() + (long) (seconds * 1e9);
        while (now() < end)
            sink += churn(2000);
    }

    static long churn(int rounds) {
        long mixed = sink;
        for (int i = 0; i < rounds; i++)
            mixed = mixed * 6364136223846793005L + (mixed >>> 17) + small(i);
        return mixed;
    }

    static int small(int number) {
        return number & 7;
    }

    static void workDirect(double seconds) {
        spin(seconds);
    }

    static void workDeep(int depth, double seconds) {
        if (depth > 0)
            workDeep(depth - 1, seconds);
        else
            spin(seconds);
    }

    static void workLambda(double seconds) {
        Runnable run = () -> spin(seconds);
        run.run();
    }

    static void workSorted(double seconds) {
        Integer[] numbers = { 2, 1 };
        Arrays.sort(numbers, (a, b) -> {
            spin(seconds);
            return a - b;
        });
    }

    /** Many short calls, which allocate. */
    static void workShort(double seconds) {
        long end = now() + (long) (seconds * 1e9);
        while (now() < end)
            for (int i = 0; i < 200; i++)
                sink += shortCall(i).length;
    }

    static int[] shortCall(int number) {
        int[] made = new int[number % 16 + 1];
        made[0] = number;
        return made;
    }

    static void part(double seconds, Map<String, Long> times) {
        String[] names = { "Direct", "Deep", "Lambda", "Sorted", "Short" };
        double[] shares = { 4, 2, 2, 1, 1 };
        for (int kind = 0; kind < names.length; kind++) {
            long start = now();
            switch (kind) {
            case 0: workDirect(seconds * shares[kind]); break;
            case 1: workDeep(12, seconds * shares[kind]); break;
            case 2: workLambda(seconds * shares[kind]); break;
            case 3: workSorted(seconds * shares[kind]); break;
            default: workShort(seconds * shares[kind]); break;
            }
            long took = now() - start;
            synchronized (times) {
                times.merge(names[kind], took, Long::sum);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[0]);
        int workers = Integer.parseInt(arguments[1]), rounds = 10;
        Map<String, Long> times = new TreeMap<>();
        now();
        System.out.println("ready");
        System.in.read();
        Thread[] threads = new Thread[workers];
        for (int i = 0; i < workers; i++) {
            threads[i] = new Thread(() -> {
                for (int round = 0; round < rounds; round++)
                    part(seconds / rounds / 10, times);
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        for (Map.Entry<String, Long> time : times.entrySet())
            System.out.println(time.getKey() + " " + time.getValue() / 1000000);
        System.out.println("done");
    }
}
