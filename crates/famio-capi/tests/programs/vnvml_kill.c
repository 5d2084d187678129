/* Transactions over two regions, to be killed at any moment:
 *
 *   vnvml_kill FOLDER KINDS work N     N transactions; prints the number of each when it is durable
 *   vnvml_kill FOLDER KINDS check      prints how many there were
 *
 * KINDS: for each region p (private) or s (shared). The numbers of the transactions say what each writes and stores. So
 * the bytes that are found tell how many have happened, and whether each has as a whole. */
#include <famio.h>
#include <famio_vnvml.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64 * 4096, WORDS = SIZE / 8, WRITES = 6, LONGEST = 1500 };

static uint64_t *regions[2], expected[2][WORDS];

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nverrmsg());
  exit(1);
}

static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/* A write of a transaction: its region, its place, its length in words, and its bytes. */
struct write {
  int region;
  size_t at, words;
  uint64_t bytes[LONGEST];
};

static void make(struct write *write, uint64_t number, int i) {
  uint64_t random = mixed(number * WRITES + (uint64_t)i);
  write->region = i % 2;
  write->words = random % 16 == 0 ? LONGEST : 1 + random % 20;
  write->at = i < 2 ? 0 : 1 + (random >> 20) % (WORDS - 1 - write->words);
  if (i < 2) write->words = 1; /* the first word of each region is the number */
  for (size_t word = 0; word < write->words; word++) write->bytes[word] = i < 2 ? number : mixed(random + word);
}

/* The number in the first word is written last. Repeats what the first `number` transactions have written, and compares. */
static void check(uint64_t number) {
  static struct write write;
  for (uint64_t n = 1; n <= number; n++)
    for (int i = WRITES - 1; i >= 0; i--) {
      make(&write, n, i);
      memcpy(expected[write.region] + write.at, write.bytes, write.words * 8);
    }
  for (int region = 0; region < 2; region++)
    for (size_t word = 0; word < WORDS; word++)
      if (expected[region][word] != regions[region][word]) {
        fprintf(stderr, "DAMAGED: after %llu and %llu transactions, word %zu of region %d\n",
                (unsigned long long)regions[0][0], (unsigned long long)regions[1][0], word, region);
        exit(1);
      }
}

static void work(uint64_t number, int kinds[2]) {
  static struct write write;
  nv_tx *tx = nv_txbegin();
  if (tx == NULL) fail("begin");
  for (int i = WRITES - 1; i >= 0; i--) {
    make(&write, number, i);
    if (nv_write(tx, regions[write.region] + write.at, write.bytes, write.words * 8) != 0) fail("write");
  }
  if (nv_commit(tx) != 0) fail("commit");
  /* What is aborted, or stored by pointer, is not to be found again. */
  tx = nv_txbegin();
  make(&write, number + 1000000, 2);
  if (tx == NULL || nv_write(tx, regions[0] + write.at, write.bytes, write.words * 8) != 0 || nv_abort(tx) != 0)
    fail("abort");
  if (kinds[0] == NV_PRIVATE) {
    uint64_t *stray = regions[0] + WORDS - 1 - number % 7, before = *stray;
    *stray = ~number;
    if (number % 100 == 50 && nv_trim(regions[0]) < 0) fail("trim");
    *stray = before;
  }
}

int main(int argc, char **argv) {
  if (argc < 4 || nv_init(NULL) != 0) return 2;
  int kinds[2];
  for (int i = 0; i < 2; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argv[1], i);
    kinds[i] = argv[2][i] == 'p' ? NV_PRIVATE : NV_SHARED;
    regions[i] = nv_allocate(path, SIZE, kinds[i]);
    if (regions[i] == NULL) fail(path);
  }
  uint64_t number = regions[0][0];
  check(number);
  if (strcmp(argv[3], "check") == 0) {
    printf("%llu\n", (unsigned long long)number);
  } else {
    for (uint64_t last = number + strtoull(argv[4], NULL, 10); number < last;) {
      work(++number, kinds);
      printf("%llu\n", (unsigned long long)number);
      fflush(stdout);
    }
    check(number);
  }
  if (nv_release() != 0) fail("release");
  return 0;
}
