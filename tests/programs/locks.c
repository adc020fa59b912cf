/* A thread waits a known number of times for each kind of lock, and each wait takes 60 ms or more. */
#include <pthread.h>
#include <semaphore.h>
#include "check.h"

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cond_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t queue_rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t queue_sem;
static pthread_barrier_t barrier;
static int is_waiting, is_signalled;

PROBED void waits_for_mutex(void) { pthread_mutex_lock(&queue_mutex); pthread_mutex_unlock(&queue_mutex); }
PROBED void waits_to_read(void) { pthread_rwlock_rdlock(&queue_rwlock); pthread_rwlock_unlock(&queue_rwlock); }
PROBED void waits_to_write(void) { pthread_rwlock_wrlock(&queue_rwlock); pthread_rwlock_unlock(&queue_rwlock); }
PROBED void waits_for_sem(void)
{
	sem_wait(&queue_sem);
	__asm__ volatile("");
}
PROBED void waits_for_cond(void)
{
	pthread_mutex_lock(&cond_mutex);
	is_waiting = 1;
	while (!is_signalled)
		pthread_cond_wait(&queue_cond, &cond_mutex);
	is_signalled = 0;
	pthread_mutex_unlock(&cond_mutex);
}

static const struct { void (*wait)(void); int times; } kinds[] = {
	{ waits_for_mutex, 6 }, { waits_to_read, 5 }, { waits_to_write, 4 }, { waits_for_sem, 3 }, { waits_for_cond, 2 },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void *waiter(void *unused)
{
	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; i < kinds[kind].times; i++) {
			pthread_barrier_wait(&barrier);
			kinds[kind].wait();
			pthread_barrier_wait(&barrier);
		}
	return unused;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	sem_init(&queue_sem, 0, 0);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_t thread;
	pthread_create(&thread, NULL, waiter, NULL);
	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; i < kinds[kind].times; i++) {
			pthread_mutex_lock(&queue_mutex);
			pthread_rwlock_wrlock(&queue_rwlock);
			pthread_barrier_wait(&barrier);
			usleep(60000);
			pthread_rwlock_unlock(&queue_rwlock);
			pthread_mutex_unlock(&queue_mutex);
			if (kind == 3)
				sem_post(&queue_sem);
			if (kind == 4) {
				pthread_mutex_lock(&cond_mutex);
				while (!is_waiting) {
					pthread_mutex_unlock(&cond_mutex);
					usleep(1000);
					pthread_mutex_lock(&cond_mutex);
				}
				is_waiting = 0;
				is_signalled = 1;
				pthread_cond_signal(&queue_cond);
				pthread_mutex_unlock(&cond_mutex);
			}
			pthread_barrier_wait(&barrier);
		}
	pthread_join(thread, NULL);
	return finish(MIX_START);
}
