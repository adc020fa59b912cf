// A program for the soak on the JVM: batches of calls of libjvm's JVM_TotalMemory on request, and
// work in between; see soak.c.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;

public class Soak {
    static void noise() {
        while (true) {
            HashMap<String, Integer> words = new HashMap<>();
            for (int word = 0; word < 5000; word++) words.put("w" + word, word);
            long sum = 0;
            for (int value : words.values()) sum += value;
            if (sum != 12497500) {
                System.out.println("FAILED: wrong sum");
                Runtime.getRuntime().halt(1);
            }
            try {
                Object nothing = sum == 0 ? "" : null;
                nothing.hashCode();
            } catch (NullPointerException expected) {
                Thread.yield();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Soak::noise);
        thread.setDaemon(true);
        thread.start();
        System.out.println("working");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            int count = Integer.parseInt(line.trim());
            for (int call = 0; call < count; call++)
                if (Runtime.getRuntime().totalMemory() <= 0) throw new IllegalStateException();
            System.out.println("done " + count);
        }
        System.out.println("OK");
    }
}
