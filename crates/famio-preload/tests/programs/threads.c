/* Many threads on one file; cancelling a thread that waits in a call; signal handlers. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

static const char *path;
static int shared;

static void *work(void *argument) {
  long number = (long)argument;
  char block[512], seen[512];
  for (int round = 0; round < 300; round++) {
    memset(block, 'a' + round % 26, sizeof block);
    int fd = round % 3 ? dup(shared) : open(path, O_RDWR);
    CHECK(fd >= 0);
    off_t at = number * 4096 + round % 8 * 512;
    CHECK(pwrite(fd, block, sizeof block, at) == sizeof block);
    CHECK(pread(fd, seen, sizeof seen, at) == sizeof seen && memcmp(block, seen, sizeof seen) == 0);
    if (round % 50 == 0) CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0);
  }
  return NULL;
}

/* Writes at the shared position: none may be lost. */
static void *append(void *argument) {
  (void)argument;
  for (int round = 0; round < 500; round++) CHECK(write(shared, "line\n", 5) == 5);
  return NULL;
}

static int ends[2];
static volatile int waiting;
static void *wait_in_read(void *argument) {
  char byte;
  waiting = (int)syscall(SYS_gettid);
  read(ends[0], &byte, 1);
  return argument;
}
static void *wait_in_open(void *argument) {
  (void)argument;
  char byte;
  struct iovec { void *base; size_t length; } buf = {&byte, 1};
  extern ssize_t readv(int, const struct iovec *, int);
  waiting = (int)syscall(SYS_gettid);
  readv(ends[0], &buf, 1);
  return NULL;
}

/* Returns when the thread sleeps in the kernel: in its call. */
static void await_sleep(void) {
  char path[64], stat[512];
  for (const char *state = NULL; state == NULL || strncmp(state, ") S", 3) != 0;) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiting);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0) close(fd);
    stat[length > 0 ? length : 0] = 0;
    state = strrchr(stat, ')');
  }
}

static volatile sig_atomic_t handled;
static sigjmp_buf back;
static void on_fault(int signal) {
  (void)signal;
  handled++;
  siglongjmp(back, 1);
}
static void on_alarm(int signal) {
  (void)signal;
  int saved = errno;
  char byte;
  /* Either answer is right; waiting forever is not. */
  if (pread(shared, &byte, 1, 0) < 0 && errno != EDEADLK) _exit(41);
  if (write(ends[1], "s", 1) != 1) _exit(42);
  handled++;
  errno = saved;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  CHECK((shared = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && pipe(ends) == 0);
  pthread_t threads[6];
  for (long i = 0; i < 6; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < 6; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(lseek(shared, 0, SEEK_END) == 6 * 4096);
  for (long i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, append, NULL) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  struct stat st;
  CHECK(fstat(shared, &st) == 0 && st.st_size == 6 * 4096 + 4 * 500 * 5);

  void *result;
  void *(*waits[])(void *) = {wait_in_read, wait_in_open};
  for (int i = 0; i < 2; i++) {
    waiting = 0;
    CHECK(pthread_create(&threads[0], NULL, waits[i], NULL) == 0);
    await_sleep();
    CHECK(pthread_cancel(threads[0]) == 0 && pthread_join(threads[0], &result) == 0 && result == PTHREAD_CANCELED);
  }

  /* The program's own fault goes to its own handler, and sigaction shows that handler. */
  struct sigaction action = {.sa_handler = on_fault}, old;
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == on_fault);
  if (sigsetjmp(back, 1) == 0) *(volatile char *)8 = 1;
  CHECK(handled == 1 && signal(SIGSEGV, SIG_DFL) == on_fault);
  FAILS(write(shared, (void *)8, 1), EFAULT);
  char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mprotect(page + 4096, 4096, PROT_NONE) == 0);
  memset(page, 'p', 4096);
  CHECK(pwrite(shared, page + 4096 - 10, 20, 0) <= 10 && pread(shared, page + 4096 - 10, 20, 0) <= 10);

  /* A handler that interrupts calls on the file, and makes calls. */
  handled = 0;
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  timer_t timer;
  struct itimerspec often = {{0, 200000}, {0, 200000}};
  CHECK(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}, &timer) == 0);
  CHECK(timer_settime(timer, 0, &often, NULL) == 0);
  char block[3000], drain[4096];
  for (int round = 0; round < 20000 && handled < 500; round++) {
    memset(block, round, sizeof block);
    CHECK(pwrite(shared, block, sizeof block, round % 9 * 1000) == sizeof block);
    CHECK(lseek(shared, 0, SEEK_SET) == 0 && read(shared, drain, 100) == 100);
    if (round % 16 == 0) CHECK(fsync(shared) == 0);
    while (round % 64 == 0 && handled > 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], drain, sizeof drain) > 0) {}
  }
  CHECK(timer_delete(timer) == 0);
  CHECK(close(shared) == 0);
  return 0;
}
