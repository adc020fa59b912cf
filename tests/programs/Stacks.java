// Calls a native function from frames of all kinds, and prints for each call the stack as Java itself knows it:
// java Stacks LIBRARY [SECONDS]. With a time it does so again and again, and prints how often each stack was there.
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntUnaryOperator;

public class Stacks {
    static final AtomicInteger numbers = new AtomicInteger(1000);
    static final StringBuilder told = new StringBuilder();
    static final Map<String, Integer> counts = new ConcurrentHashMap<>();
    static boolean soaks;
    static int sink;

    /** A probe is on it. */
    static native void mark(int number);

    /** Calls Stacks.back(number) from C. */
    static native void through(int number);

    static void call() {
        int number = numbers.getAndIncrement();
        mark(number); tell(number, new Throwable());
    }

    static void tell(int number, Throwable throwable) {
        StringBuilder text = new StringBuilder();
        text.append("Stacks.java Stacks.mark\n");
        for (StackTraceElement frame : throwable.getStackTrace()) {
            if (frame.getFileName() != null) {
                text.append(frame.getFileName());
                if (frame.getLineNumber() > 0) text.append(":" + frame.getLineNumber());
                text.append(" ");
            }
            text.append(frame.getClassName() + "." + frame.getMethodName() + "\n");
        }
        if (soaks) {
            counts.merge(text.toString(), 1, Integer::sum);
        } else {
            synchronized (told) {
                told.append("stack " + number + "\n" + text);
            }
        }
    }

    static void back(int depth) {
        if (depth > 0) through(depth - 1);
        else call();
    }

    static int inner(int number, boolean calls) {
        if (calls) call();
        return number * 3 + 1;
    }

    static int middle(int number, boolean calls) {
        return inner(number, calls)
            + inner(number + 1, false);
    }

    static int outer(int number, boolean calls) {
        int sum = middle(number, false);
        sum += middle(number, calls);
        return sum;
    }

    /** Hot: it is compiled while it runs, and its callees are inlined. */
    static void hot(int rounds, int calls) {
        for (int round = 0; round < rounds; round++) sink += outer(round, round >= rounds - calls);
    }

    static int recursion(int depth) {
        if (depth == 0) {
            call();
            return 1;
        }
        return recursion(depth - 1) + 1;
    }

    static int manyArguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, boolean calls) {
        if (calls) call();
        return a + b + c + d + e + f + g + h + i;
    }

    static void lambdas(boolean calls) {
        IntUnaryOperator operator = number -> {
            if (calls && number == 2) call();
            return number + 1;
        };
        sink += Arrays.stream(new int[] {1, 2, 3}).map(operator).sum();
        Runnable reference = calls ? Stacks::call : () -> sink++;
        reference.run();
    }

    static void exceptions(boolean calls) {
        try {
            Object[] none = new Object[0];
            sink += none[sink & 1].hashCode();
        } catch (ArrayIndexOutOfBoundsException exception) {
            if (calls) call();
        } finally {
            if (calls) call();
        }
    }

    static synchronized void locked(Object lock, boolean calls) {
        synchronized (lock) {
            if (calls) call();
        }
    }

    static void reflection() throws Exception {
        Stacks.class.getDeclaredMethod("call").invoke(null);
    }

    interface Shape {
        int area();
    }

    static class Square implements Shape {
        public int area() {
            return 4;
        }
    }

    /** Its class is loaded when hot code believes that there is one kind of shape only. */
    static class Late implements Shape {
        public int area() {
            call();
            return 5;
        }
    }

    static int areas(Shape shape, boolean last) {
        int area = shape.area();
        if (last) area += new Late().area();
        return area + shape.area();
    }

    static void surprises() {
        Shape square = new Square();
        for (int round = 0; round < 30000; round++) sink += areas(square, false);
        sink += areas(square, true);
        sink += areas(new Late(), true);
    }

    static void collections() {
        for (int round = 0; round < 3; round++) {
            byte[][] garbage = new byte[64][];
            for (int index = 0; index < garbage.length; index++) garbage[index] = new byte[10000];
            System.gc();
            call();
        }
    }

    /** A class that is loaded anew, runs once, and may be unloaded. */
    public static class Passing implements Runnable {
        public void run() {
            call();
        }
    }

    static class Loader extends ClassLoader {
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.equals("Stacks$Passing")) return super.loadClass(name, resolve);
            try (InputStream file = getResourceAsStream("Stacks$Passing.class")) {
                byte[] bytes = file.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (java.io.IOException exception) {
                throw new ClassNotFoundException(name, exception);
            }
        }
    }

    static void passing() throws Exception {
        Runnable passing = (Runnable) new Loader().loadClass("Stacks$Passing").getDeclaredConstructor().newInstance();
        passing.run();
    }

    static void all(int rounds) throws Exception {
        call();
        hot(rounds, 3);
        recursion(30);
        for (int round = 0; round < rounds; round++) {
            boolean calls = round >= rounds - 2;
            sink += manyArguments(round, 2, 3, 4, 5, 6, 7, 8, 9, calls);
            exceptions(calls);
            locked(told, calls);
            if (round % 8 == 0 || calls) lambdas(calls);
        }
        back(3);
        reflection();
        surprises();
        collections();
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        input.readLine();
        soaks = arguments.length > 1;
        long end = System.nanoTime() + (soaks ? Long.parseLong(arguments[1]) * 1_000_000_000L : 0);
        all(10);
        all(20000);
        Thread[] threads = new Thread[3];
        for (int index = 0; index < threads.length; index++) {
            threads[index] = new Thread(() -> {
                try {
                    all(5000);
                    while (System.nanoTime() < end) {
                        all(200);
                        passing();
                    }
                } catch (Exception exception) {
                    System.out.println("FAILED " + exception);
                }
            });
            threads[index].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.print(told);
        counts.forEach((stack, count) -> System.out.println("stack " + count + "\n" + stack));
        System.out.println("done");
        input.readLine();
        System.out.println("OK");
    }
}
