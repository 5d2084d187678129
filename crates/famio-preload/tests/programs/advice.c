/* Advice: madvise, posix_madvise and posix_fadvise change no byte; on an atomic file they start and stop map-ahead,
 * which shows in the page tables. Also O_ATOMIC in the flags of open. argv[1] is the file, argv[2] the case. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#ifndef O_ATOMIC
#define O_ATOMIC 0x40000000
#endif

#define PAGE 4096
#define MIB (1 << 20)
#define SIZE (48 * MIB) /* more than the widest window */

static bool atomic;
static bool background; /* there is a second processor */
static char page[PAGE];

static char *letters(int number) {
  memset(page, 'a' + number % 26, PAGE);
  return page;
}

/* A file of whole pages, each filled with a letter. */
static void make(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0);
  for (int i = 0; i < SIZE / PAGE; i++) CHECK(write(fd, letters(i), PAGE) == PAGE);
  CHECK(fsync(fd) == 0 && close(fd) == 0);
}

static void same(const char *map) {
  for (int i = 0; i < SIZE / PAGE; i++) CHECK(memcmp(map + (size_t)i * PAGE, letters(i), PAGE) == 0);
}

/* The number of pages in start..start+length with a page-table entry. */
static long mapped(const char *start, size_t length) {
  static uint64_t words[SIZE / PAGE];
  int fd = open("/proc/self/pagemap", O_RDONLY);
  ssize_t size = (ssize_t)(length / PAGE * 8);
  CHECK(pread(fd, words, (size_t)size, (off_t)((uintptr_t)start / PAGE * 8)) == size && close(fd) == 0);
  long count = 0;
  for (size_t i = 0; i < length / PAGE; i++) count += words[i] >> 63;
  return count;
}

/* Waits until the background has mapped it, at least one page per 64 KiB: the kernel maps no more of what must be
 * read from disk. The alarm ends a wait that takes too long. */
static void wait_for(const char *start, size_t length) {
  while (background && mapped(start, length) < (long)(length / (64 << 10))) sched_yield();
}

/* The library's map of the file; NULL: none. */
static char *map_of(const char *path) {
  char line[5000], *found = NULL;
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    line[strcspn(line, "\n")] = 0;
    size_t length = strlen(line), end = strlen(path);
    if (length > end && strcmp(line + length - end, path) == 0) found = (char *)strtoul(line, NULL, 16);
  }
  CHECK(fclose(maps) == 0);
  return found;
}

/* Writable maps. */
static void maps(const char *path) {
  int fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  for (int way = 0; way < 2; way++) {
    CHECK(madvise(map, SIZE, MADV_DONTNEED) == 0 && mapped(map, SIZE) == 0);
    CHECK((way ? posix_madvise : madvise)(map + 8 * MIB, 8 * MIB, POSIX_MADV_WILLNEED) == 0);
    if (atomic) {
      wait_for(map + 8 * MIB, 8 * MIB);
      CHECK(mapped(map + 20 * MIB, SIZE - 20 * MIB) == 0);
    }
    CHECK((way ? posix_madvise : madvise)(map, SIZE, POSIX_MADV_DONTNEED) == 0);
    if (atomic) CHECK(mapped(map, SIZE) == 0);
    CHECK((way ? posix_madvise : madvise)(map, SIZE, POSIX_MADV_SEQUENTIAL) == 0);
    if (atomic) wait_for(map, 32 * MIB);
    for (int advice = POSIX_MADV_NORMAL; advice <= POSIX_MADV_DONTNEED; advice++) {
      CHECK((way ? posix_madvise : madvise)(map, SIZE, advice) == 0);
      same(map);
    }
  }
  FAILS(madvise(map + 1, PAGE, MADV_WILLNEED), EINVAL);
  FAILS(madvise(map, PAGE, 99), EINVAL);
  CHECK(posix_madvise(map, PAGE, 99) == EINVAL);
  map[5] = '!';
  CHECK(msync(map, SIZE, MS_SYNC) == 0 && munmap(map, SIZE) == 0 && pwrite(fd, "a", 1, 5) == 1 && close(fd) == 0);
}

/* Reads by calls. */
static void reads(const char *path) {
  char name[4200], record[PAGE];
  CHECK(realpath(path, name) != NULL);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  while (map_of(name) != NULL) sched_yield(); /* the background may still be busy with the file that was closed */
  CHECK(posix_fadvise(fd, 4 * MIB, 4 * MIB, POSIX_FADV_WILLNEED) == 0);
  char *map = map_of(name);
  CHECK(atomic == (map != NULL));
  if (atomic) {
    wait_for(map + 4 * MIB, 4 * MIB);
    CHECK(mapped(map + 10 * MIB, SIZE - 10 * MIB) == 0);
  }
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  if (atomic) CHECK(mapped(map, SIZE) == 0);
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
  if (atomic) wait_for(map, 32 * MIB);
  for (int i = 0; i < SIZE / PAGE; i++) {
    CHECK(read(fd, record, PAGE) == PAGE && memcmp(record, letters(i), PAGE) == 0);
  }
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
  for (int i = 0; i < 3 * MIB / PAGE; i++) CHECK(pread(fd, record, PAGE, (off_t)i * PAGE) == PAGE);
  /* No more than what the kernel maps around a fault. */
  if (atomic) {
    CHECK(mapped(map + 3 * MIB, SIZE - 3 * MIB) <= 16);
    /* Everything, except for pages that the kernel takes back (DAMON). */
    long missing = 3 * MIB / PAGE - mapped(map, 3 * MIB);
    CHECK(missing >= 0 && missing <= 3 * MIB / PAGE / 64);
  }
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE) == 0);
  CHECK(posix_fadvise(fd, 0, 0, 99) == EINVAL && posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL) == EBADF);
  CHECK(close(fd) == 0);
}

/* A file that no glob selects, made atomic when it is opened. */
static void flag(const char *how) {
  int fd = open("by-flag", O_RDWR | O_CREAT | O_ATOMIC, 0644);
  CHECK(fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
  CHECK(pwrite(fd, "durable", 7, 0) == 7 && fsync(fd) == 0);
  CHECK(pwrite(fd, "perhaps", 7, 0) == 7);
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
  CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  atomic = strcmp(argv[1], "atomic") == 0;
  cpu_set_t processors;
  CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
  background = CPU_COUNT(&processors) > 1;
  alarm(120);
  if (argc > 2) {
    flag(argv[2]);
    return 0;
  }
  make(argv[1]);
  reads(argv[1]);
  maps(argv[1]);
  return 0;
}
