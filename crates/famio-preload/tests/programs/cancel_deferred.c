/* A thread that may be cancelled at cancellation points makes calls on a file all the time, some of which begin and
 * end a session: it must end at its own cancellation points, never in the middle of a call of the library's. */
#include "check.h"
#include <pthread.h>

enum { BLOCK = 512, ROUNDS = 100 };
static const char *path;

static void *writes(void *nothing) {
  char block[BLOCK];
  memset(block, 'x', sizeof block);
  for (int round = 0;; round++) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && pwrite(fd, block, BLOCK, round % 2 ? 0 : 4096) == BLOCK && fsync(fd) == 0);
    CHECK(close(fd) == 0);
    pthread_testcancel();
  }
  return nothing;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  alarm(200);
  path = argv[1];
  for (int i = 0; i < ROUNDS; i++) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, writes, NULL) == 0);
    usleep(i * 37 % 2000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  }
  return 0;
}
