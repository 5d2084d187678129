/* Two threads append records to a file and rewrite a slot in it, each time followed by a SYNC, until killed. argv:
 * the file, the number of this process, its slots; durable records are reported on stdout. The first 32 blocks are
 * slots, one per thread. With a third argument, a SYNC follows only every that many records: writes must stay
 * without one; the fourth is the first stamp. */
#include "check.h"
#include <pthread.h>
#include <time.h>

#define BLOCK 4096
#define SLOTS 32

static const char *path;
static int number;
static unsigned sync_every = 1, given;

static void say(const char *what, int thread, unsigned stamp) {
  char line[64];
  int n = snprintf(line, sizeof line, "%s %d %u\n", what, thread, stamp);
  write(1, line, (size_t)n);
}

static void *work(void *argument) {
  int thread = (int)(intptr_t)argument;
  int append = open(path, O_WRONLY | O_APPEND), slot = open(path, O_RDWR);
  CHECK(append >= 0 && slot >= 0);
  unsigned seed = (unsigned)(getpid() * 7 + thread);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  /* Higher than that of any previous process. */
  unsigned first = (unsigned)((now.tv_sec * 1000 + now.tv_nsec / 1000000) % 40000000 * 100);
  if (given) first = given;
  for (unsigned stamp = first;; stamp++) {
    /* A record: a line of one letter, with its length and writer at both ends. */
    char record[3000], head[64];
    int length = 40 + rand_r(&seed) % 2500, n = snprintf(head, sizeof head, "[%d.%d.%u ", number, thread, stamp);
    memset(record, 'a' + (int)(stamp % 26), (size_t)length);
    memcpy(record, head, (size_t)n);
    n = snprintf(head, sizeof head, " %d.%d.%u]\n", number, thread, stamp);
    memcpy(record + length - n, head, (size_t)n);
    CHECK(write(append, record, (size_t)length) == length);
    if (stamp % sync_every == 0) CHECK(fsync(append) == 0);
    say("record", thread, stamp);
    unsigned block[BLOCK / sizeof(unsigned)];
    for (size_t i = 0; i < BLOCK / sizeof(unsigned); i++) block[i] = stamp;
    off_t at = (off_t)(number * 2 + thread) * BLOCK;
    /* In one piece: any process's SYNC commits what all have written. */
    CHECK(pwrite(slot, block, BLOCK, at) == BLOCK);
    if (stamp % sync_every == 0) CHECK(fdatasync(slot) == 0);
    say("slot", thread, stamp);
  }
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 3 || argc == 5);
  if (argc == 5) {
    sync_every = (unsigned)atoi(argv[3]);
    given = (unsigned)strtoul(argv[4], NULL, 10);
  }
  path = argv[1];
  number = atoi(argv[2]);
  pthread_t threads[2];
  for (intptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  pthread_join(threads[0], NULL);
  return 0;
}
