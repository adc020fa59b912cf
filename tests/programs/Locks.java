/** A thread wakes the main thread up five times, after 30 ms each. */
public class Locks {
    static final Object LOCK = new Object();
    static int turn;

    public static void main(String[] arguments) throws Exception {
        Thread waker = new Thread(() -> {
            for (int i = 1; i <= 5; i++) {
                try {
                    Thread.sleep(30);
                } catch (InterruptedException interrupted) {
                    return;
                }
                synchronized (LOCK) {
                    turn = i;
                    LOCK.notifyAll();
                    while (turn == i) {
                        try {
                            LOCK.wait();
                        } catch (InterruptedException interrupted) {
                            return;
                        }
                    }
                }
            }
        });
        synchronized (LOCK) {
            waker.start();
            for (int i = 1; i <= 5; i++) {
                while (turn != i) {
                    LOCK.wait();
                }
                turn = 0;
                LOCK.notifyAll();
            }
        }
        waker.join();
        System.out.println("OK");
    }
}
