/* A thread that may be cancelled at any instruction makes calls on a file all the time: it ends, with its clean-up
 * handlers, and its writes are there; the other threads go on. */
#include "check.h"
#include <pthread.h>

enum { BLOCK = 4096, ROUNDS = 60 };
static int fd;
static volatile int rounds, cleaned;

static void clean(void *nothing) {
  (void)nothing;
  cleaned++;
}

static void *writes(void *nothing) {
  (void)nothing;
  char block[BLOCK], back[BLOCK];
  pthread_cleanup_push(clean, NULL);
  for (int round = 0;; round++) {
    memset(block, 'a' + round % 26, sizeof block);
    int old;
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0 && old == PTHREAD_CANCEL_DEFERRED);
    ssize_t n = pwrite(fd, block, BLOCK, 0), m = pread(fd, back, BLOCK, 0);
    int synced = round % 4 ? 0 : fsync(fd);
    CHECK(n == BLOCK && m == BLOCK && synced == 0);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old) == 0 && old == PTHREAD_CANCEL_ASYNCHRONOUS);
    rounds++;
  }
  pthread_cleanup_pop(0);
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  /* A hang is a failure: the default action of SIGALRM ends the program. */
  alarm(200);
  CHECK((fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  for (int i = 0; i < ROUNDS; i++) {
    pthread_t thread;
    void *result;
    rounds = 0;
    CHECK(pthread_create(&thread, NULL, writes, NULL) == 0);
    while (rounds < 3 + i % 7);
    for (volatile int wait = i * 97 % 5000; wait > 0; wait--); /* at any instruction */
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && cleaned == i + 1);
    char back[BLOCK];
    CHECK(pread(fd, back, BLOCK, 0) == BLOCK);
    for (int at = 1; at < BLOCK; at++) CHECK(back[at] == back[0]);
    CHECK(pwrite(fd, "main", 4, 0) == 4 && fsync(fd) == 0);
  }
  CHECK(close(fd) == 0);
  return 0;
}
