/* A mapped file of which most is holes, larger than memory, to be killed at any moment.
 *
 * sparse FILE work GIB EVERYWHERE EPOCHS: epochs of 1,000 stores of 8 to 4096 bytes, each ended by msync. Most stores lie in
 *   one GiB in the middle, EVERYWHERE percent of them anywhere. Says before each msync "sync EPOCH", and then "done EPOCH
 *   MICROSECONDS".
 * sparse FILE check GIB EVERYWHERE MODEL mapped|read: says which epoch is there, as a whole and nothing else. MODEL is an
 *   ordinary file that has an earlier epoch, and gets this one. Compares what a map shows, or what reads give.
 *
 * With NVMMAP the calls are libfamio's, otherwise the system's, for famio run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../../famio-preload/tests/programs/check.h"
#include <sys/mman.h>
#include <time.h>
#ifdef NVMMAP
#include <famio.h>
#else
#define nvopen open
#define nvftruncate ftruncate
#define nvmmap mmap
#define nvmsync msync
#define nvpread pread
#define nvadvise madvise
#endif

enum { STORES = 1000, LONGEST = 4096, PIECE = 1 << 16 };
static const uint64_t GIB = 1ull << 30;

static uint64_t size, everywhere;

static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* The bytes of a store, and where they go. Index STORES and STORES + 1 are the number of the epoch, at both ends of the file. */
static uint64_t make(uint64_t epoch, uint64_t i, char *bytes, size_t *len) {
  uint64_t words[LONGEST / 8], random = mixed(epoch * (STORES + 2) + i + 1);
  if (i >= STORES) {
    memcpy(bytes, &epoch, *len = 8);
    return i == STORES ? 0 : size - 8;
  }
  /* Half of them are short. */
  *len = 8 + (size_t)(random % (random & 1 << 20 ? 100 : LONGEST - 7));
  for (size_t word = 0; word < LONGEST / 8; word++) words[word] = random + word * 0x9e3779b97f4a7c15ull;
  memcpy(bytes, words, *len);
  uint64_t at = mixed(random), room = GIB;
  if (mixed(at) % 100 < everywhere) room = size - 16;
  return (room == GIB ? size / 2 : 8) + at % (room - *len);
}

static void work(char *map, uint64_t epoch, uint64_t epochs) {
  char bytes[LONGEST], text[64];
  size_t len;
  struct timespec from, to;
  for (uint64_t end = epoch + epochs; epoch++ < end;) {
    for (uint64_t i = 0; i < STORES + 2; i++) {
      uint64_t at = make(epoch, i, bytes, &len);
      memcpy(map + at, bytes, len);
    }
    int n = snprintf(text, sizeof text, "sync %llu\n", (unsigned long long)epoch);
    CHECK(write(1, text, (size_t)n) == n);
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(nvmsync(map, size, MS_SYNC) == 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    long long us = (to.tv_sec - from.tv_sec) * 1000000ll + (to.tv_nsec - from.tv_nsec) / 1000;
    n = snprintf(text, sizeof text, "done %llu %lld\n", (unsigned long long)epoch, us);
    CHECK(write(1, text, (size_t)n) == n);
  }
}

/* The model gets the epochs that it lacks. */
static void catch_up(int model, uint64_t last) {
  uint64_t epoch = 0;
  char bytes[LONGEST];
  size_t len;
  CHECK(ftruncate(model, (off_t)size) == 0 && pread(model, &epoch, 8, 0) == 8);
  CHECK(epoch <= last);
  while (epoch++ < last)
    for (uint64_t i = 0; i < STORES + 2; i++) {
      uint64_t at = make(epoch, i, bytes, &len);
      CHECK(pwrite(model, bytes, len, (off_t)at) == (ssize_t)len);
    }
}

/* Where the kernel's file has data, or a hole, from `at` on. To Famio, a file has no holes. */
static uint64_t next(int fd, uint64_t at, int what) {
  long found = inlined(SYS_lseek, fd, (long)at, what, 0);
  return found < 0 ? size : (uint64_t)found;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Nothing is in a journal alone now. What is neither in the file nor in the model is a hole of both. */
static void compare(int fd, const char *map, int model) {
  static char there[PIECE], expected[PIECE];
  uint64_t at = 0, ends[2] = {0, 0}, len;
  for (;; at += len) {
    uint64_t starts[2] = {next(fd, at, SEEK_DATA), next(model, at, SEEK_DATA)};
    at = least(starts[0], starts[1]);
    if (at >= size) return;
    for (int i = 0; i < 2; i++) ends[i] = starts[i] == at ? next(i ? model : fd, at, SEEK_HOLE) : starts[i];
    len = least(least(ends[0], ends[1]) - at, PIECE);
    CHECK(pread(model, expected, len, (off_t)at) == (ssize_t)len);
    if (map) memcpy(there, map + at, len);
    else CHECK(nvpread(fd, there, len, (off_t)at) == (ssize_t)len);
    for (size_t i = 0; memcmp(there, expected, len) != 0 && i < len; i++)
      if (there[i] != expected[i]) {
        fprintf(stderr, "torn: the byte at %llu is %d instead of %d\n", (unsigned long long)(at + i), there[i], expected[i]);
        exit(1);
      }
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 6 || argc == 7);
  int checks = strcmp(argv[2], "check") == 0, mapped = !checks || strcmp(argv[6], "mapped") == 0;
  size = (uint64_t)atol(argv[3]) * GIB;
  everywhere = (uint64_t)atol(argv[4]);
  int fd = nvopen(argv[1], O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  struct stat info;
  CHECK(stat(argv[1], &info) == 0 && (info.st_size == (off_t)size || nvftruncate(fd, (off_t)size) == 0));
  uint64_t epoch = 0;
  char *map = NULL;
  if (mapped) {
    map = nvmmap(NULL, size, checks ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    /* No reading ahead, which takes most of the time where it is set to megabytes. */
    CHECK(nvadvise(map, size, MADV_RANDOM) == 0);
  }
  CHECK(nvpread(fd, &epoch, 8, 0) == 8);
  if (!checks) {
    work(map, epoch, (uint64_t)atol(argv[5]));
    return 0;
  }
  int model = open(argv[5], O_RDWR | O_CREAT, 0600);
  CHECK(model >= 0);
  catch_up(model, epoch);
  compare(fd, map, model);
  printf("%llu\n", (unsigned long long)epoch);
  return 0;
}
