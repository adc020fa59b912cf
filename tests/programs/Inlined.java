import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * Spends known shares of its time in functions that are inlined into others.
 *
 *     java Inlined SECONDS
 *
 * Prints `ready`, waits for a line, works, and prints for each of the functions `FUNCTION MILLISECONDS`, by the thread's
 * own clock.
 */
public class Inlined {
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    static volatile long sink;

    static long now() {
        return CLOCK.getCurrentThreadCpuTime();
    }

    /** A compiled loop of this form asks in each round whether it shall stop: HotSpot describes that place. */
    static void left(long rounds) {
        long mixed = sink;
        for (long left = rounds; left > 0; left -= 1 + (mixed & 1))
            mixed = mixed * 6364136223846793005L + (mixed >>> 17);
        sink = mixed;
    }

    static void right(long rounds) {
        long mixed = sink;
        for (long left = rounds; left > 0; left -= 1 + (mixed & 1))
            mixed = mixed * 2862933555777941757L + (mixed >>> 13);
        sink = mixed;
    }

    static void deepest(long rounds) {
        long mixed = sink;
        for (long left = rounds; left > 0; left -= 1 + (mixed & 1))
            mixed = mixed * 3202034522624059733L + (mixed >>> 11);
        sink = mixed;
    }

    static void deep(long rounds) {
        deepest(rounds);
    }

    static void part(long rounds, long[] times) {
        long start = now();
        left(rounds * 3);
        long between = now();
        right(rounds);
        long after = now();
        deep(rounds * 2);
        long end = now();
        times[0] += between - start;
        times[1] += after - between;
        times[2] += end - after;
    }

    static void work(double seconds, long[] times) {
        long end = now() + (long) (seconds * 1e9);
        while (now() < end)
            part(20000, times);
    }

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[0]);
        // What is to be compiled is compiled before the samples.
        work(1, new long[3]);
        System.out.println("ready");
        System.in.read();
        long[] times = new long[3];
        work(seconds, times);
        System.out.println("left " + times[0] / 1000000);
        System.out.println("right " + times[1] / 1000000);
        System.out.println("deepest " + times[2] / 1000000);
        System.out.println("done");
    }
}
