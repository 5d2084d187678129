/* A handler that makes the same calls as main(), which it interrupts. Each succeeds; none waits for what it
 * interrupted. */
#include "check.h"
#include <signal.h>
#include <time.h>

enum { ENOUGH = 1500, BLOCK = 4096 };

static const char *path;
static int shared;
static volatile sig_atomic_t handled, answered;

/* Counts an answer; an error ends the program. */
static bool answer(long result, int call) {
  if (result >= 0) {
    answered++;
    return true;
  }
  int error = errno;
  char text[64];
  int n = snprintf(text, sizeof text, "handler: call %d: errno %d\n", call, error);
  write(2, text, (size_t)n);
  _exit(40 + call);
}

static void on_timer(int signal) {
  (void)signal;
  int saved = errno;
  struct stat st;
  char bytes[100];
  memset(bytes, 'h', sizeof bytes);
  answer(fsync(shared), 1);
  if (answer(fstat(shared, &st), 2) && st.st_size < BLOCK) _exit(51);
  int fd = open(path, O_RDWR);
  if (answer(fd, 3)) answer(close(fd), 4);
  long written = pwrite(shared, bytes, sizeof bytes, BLOCK);
  if (answer(written, 5) && written != sizeof bytes) _exit(52);
  handled++;
  errno = saved;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  CHECK((shared = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  char block[BLOCK], seen[BLOCK];
  memset(block, 0, sizeof block);
  CHECK(pwrite(shared, block, sizeof block, 0) == BLOCK && fsync(shared) == 0);
  /* A hang is a failure: the default action of SIGALRM ends the program. */
  alarm(100);
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  struct itimerspec often = {{0, 1000000}, {0, 1000000}};
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
  for (int round = 0; handled < ENOUGH; round++) {
    memset(block, 'a' + round % 26, sizeof block);
    CHECK(pwrite(shared, block, sizeof block, 0) == BLOCK);
    CHECK(pread(shared, seen, sizeof seen, 0) == BLOCK && memcmp(block, seen, sizeof seen) == 0);
    struct stat st;
    CHECK(fstat(shared, &st) == 0 && st.st_size >= BLOCK);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK(close(fd) == 0);
    CHECK(fsync(shared) == 0);
  }
  CHECK(timer_delete(timer) == 0);
  CHECK(answered > 0);
  /* Without the handler, everything is as if it had never run. */
  CHECK(pread(shared, seen, sizeof seen, 0) == BLOCK && memcmp(block, seen, sizeof seen) == 0);
  struct stat st;
  CHECK(fstat(shared, &st) == 0 && (st.st_size == BLOCK || st.st_size == BLOCK + 100));
  for (long i = BLOCK; i < st.st_size; i++) CHECK(pread(shared, seen, 1, i) == 1 && seen[0] == 'h');
  CHECK(close(shared) == 0);
  return 0;
}
