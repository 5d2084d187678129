/* Threads are cancelled within functions of streams, which are cancellation points of libc. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <wchar.h>

static atomic_bool begun;
static int ends[2];

static void *writes(void *path) {
  FILE *file;
  while ((file = fopen(path, "w"))) {
    fprintf(file, "text");
    begun = true;
    fclose(file);
  }
  return path;
}

static void *reads(void *unused) {
  FILE *file = fdopen(ends[0], "r");
  begun = true;
  fgetwc(file);
  for (;;) pthread_testcancel();
  return unused;
}

static void *waits(void *path) {
  begun = true;
  FILE *file = fopen(path, "r");
  for (;;) pthread_testcancel();
  return file;
}

static pthread_t start(void *(*work)(void *), char *path) {
  pthread_t thread;
  begun = false;
  CHECK(pthread_create(&thread, NULL, work, path) == 0);
  while (!begun) sched_yield();
  CHECK(pthread_cancel(thread) == 0);
  return thread;
}

static void end(pthread_t thread) {
  void *result;
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

int main(int argc, char **argv) {
  CHECK(argc == 3 && mkfifo(argv[2], 0600) == 0);
  for (int i = 0; i < 50; i++) end(start(writes, argv[1]));
  CHECK(pipe(ends) == 0);
  pthread_t thread = start(reads, NULL);
  CHECK(write(ends[1], "x", 1) == 1);
  end(thread);
  thread = start(waits, argv[2]);
  int other = open(argv[2], O_RDWR); /* natively the thread may be gone by now */
  CHECK(other >= 0);
  end(thread);
  return 0;
}
