/* The main thread ends before another one. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static atomic_bool ends;

static void *work(void *path) {
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  CHECK(fd >= 0 && write(fd, "first", 5) == 5 && fsync(fd) == 0);
  while (!ends) sched_yield();
  CHECK(pwrite(fd, "later", 5, 0) == 5);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work, argv[argc - 1]) == 0);
  ends = true;
  pthread_exit(NULL);
}
