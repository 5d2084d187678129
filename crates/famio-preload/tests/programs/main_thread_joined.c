/* A thread waits for the end of the main thread, and then goes on. */
#include "check.h"
#include <pthread.h>

static pthread_t first;
static const char *path;

static void put(const char *bytes) {
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  CHECK(fd >= 0 && write(fd, bytes, 5) == 5 && fsync(fd) == 0 && close(fd) == 0);
}

static void *work(void *before) {
  if (before) put("first");
  CHECK(pthread_join(first, NULL) == 0);
  put("later");
  return NULL;
}

int main(int argc, char **argv) {
  first = pthread_self();
  path = argv[1];
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work, argc > 2 ? argv : NULL) == 0);
  pthread_exit(NULL);
}
