/* Shows a process other clocks than the machine's: preloaded, told by the file that FAULTY_CLOCK names.
 *
 * The file is mapped, so that whoever writes it is obeyed at the next call. It holds numbers of 64 bits:
 *
 *   0  odd while the others are being written
 *   1  nanoseconds by which the real time is stepped
 *   2  parts in a million by which all clocks run too fast; they drift from
 *   3  this monotonic time of the machine on (ns), beginning with
 *   4  an offset that they have already (ns)
 *
 * A step leaves the monotonic clock alone, as the kernel does. Waits until a given time are turned into
 * the machine's time; waits for a while take the machine's while, a drift less than their callers ask.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static const volatile int64_t *told;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*real_cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    if (real_gettime) return;
    real_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    /* The first version of this one has another condition variable; without a version it would be found. */
    real_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond_timedwait) real_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_cond_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    real_cnd_timedwait = dlsym(RTLD_NEXT, "cnd_timedwait");
    real_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    const char *path = getenv("FAULTY_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, 5 * sizeof *told, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) told = found;
        close(file);
    }
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

static int64_t nanoseconds(const struct timespec *at) { return at->tv_sec * BILLION + at->tv_nsec; }

static struct timespec at(int64_t ns) {
    struct timespec found = {ns / BILLION, ns % BILLION};
    if (found.tv_nsec < 0) { found.tv_sec--; found.tv_nsec += BILLION; }
    return found;
}

static int is_real_time(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

static int is_faulty(clockid_t clock) {
    return told && (is_real_time(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                    clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME);
}

/* How far a clock is off now; `rate` is set to the parts in a million. */
static int64_t error_of(clockid_t clock, int64_t *rate) {
    struct timespec now;
    real_gettime(CLOCK_MONOTONIC, &now);
    for (;;) {
        int64_t version = told[0], step = told[1], ppm = told[2], from = told[3], offset = told[4];
        if (version % 2 || version != told[0]) continue;
        *rate = ppm;
        int64_t drifted = ppm ? (int64_t)((double)(nanoseconds(&now) - from) * (double)ppm / 1e6) : 0;
        return offset + drifted + (is_real_time(clock) ? step : 0);
    }
}

/* The machine's time for a time of the faulty clock. */
static struct timespec machine_time(clockid_t clock, const struct timespec *until) {
    if (!is_faulty(clock)) return *until;
    int64_t rate;
    struct timespec now;
    real_gettime(clock, &now);
    int64_t left = nanoseconds(until) - error_of(clock, &rate) - nanoseconds(&now);
    return at(nanoseconds(&now) + (int64_t)((double)left / (1 + (double)rate / 1e6)));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    begin();
    int status = real_gettime(clock, now);
    int64_t rate;
    if (!status && is_faulty(clock)) *now = at(nanoseconds(now) + error_of(clock, &rate));
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec found;
    int status = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return status;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    begin();
    if (!(flags & TIMER_ABSTIME)) return real_nanosleep(clock, flags, until, left);
    struct timespec real = machine_time(clock, until);
    return real_nanosleep(clock, flags, &real, left);
}

/* Its clock is an attribute of the condition, and can be told by the time: no machine runs for 30 years. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    begin();
    struct timespec real = machine_time(until->tv_sec > BILLION ? CLOCK_REALTIME : CLOCK_MONOTONIC, until);
    return real_cond_timedwait(cond, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    begin();
    struct timespec real = machine_time(clock, until);
    return real_cond_clockwait(cond, mutex, clock, &real);
}

/* librdkafka's: the C library's own does not call pthread_cond_timedwait where it could be replaced. */
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
    begin();
    struct timespec real = machine_time(CLOCK_REALTIME, until);
    return real_cnd_timedwait(cond, mutex, &real);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    begin();
    struct timespec real = machine_time(CLOCK_REALTIME, until);
    return real_sem_timedwait(sem, &real);
}

int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict until) {
    begin();
    struct timespec real = machine_time(clock, until);
    return real_sem_clockwait(sem, clock, &real);
}
