/* Threads that open a file, look for what they wrote last, write, and close it, again and again: each in its own range,
 * from the given offset on. Another thread lists the folder, which makes closes that are deferred. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>

#define THREADS 3
#define LENGTH 700

static const char *path;
static long first, rounds;

static void *again(void *number) {
  long at = first + (long)number * LENGTH;
  char bytes[LENGTH], seen[LENGTH];
  memset(bytes, '.', LENGTH);
  for (long round = 0; round < rounds; round++) {
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, seen, LENGTH, at) == LENGTH);
    CHECK(memcmp(seen, bytes, LENGTH) == 0);
    memset(bytes, 'a' + (int)(round % 26), LENGTH);
    CHECK(pwrite(fd, bytes, LENGTH, at) == LENGTH);
    if (round % 8 == 0) CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0);
  }
  return NULL;
}

static void *lists(void *unused) {
  (void)unused;
  for (long round = 0; round < rounds; round++) {
    DIR *folder = opendir(".");
    CHECK(folder && closedir(folder) == 0);
  }
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  path = argv[1];
  first = atol(argv[2]);
  rounds = atol(argv[3]);
  pthread_t threads[THREADS], lister;
  CHECK(pthread_create(&lister, NULL, lists, NULL) == 0);
  for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, again, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(pthread_join(lister, NULL) == 0);
  return 0;
}
