/* A mapped file of which most is holes, larger than the memory that it may take.
 *
 * large FILE stores GIB: epochs of 1,000 stores in 1 GiB of it, each ended by msync; says the number of each that is durable. Begins
 *   by checking what is there. large FILE check GIB: no more than that; says the last epoch.
 * large FILE leave GIB HOW BYTE: stores it, and ends without a SYNC. large FILE byte GIB: says what is there.
 * large FILE other GIB: beside another process that has it mapped.
 * large FILE memory GIB MIB EPOCHS: as many epochs, and never more than so many MiB of memory of its own.
 * large FILE traps GIB: what private pages could do otherwise than shared ones. large FILE threads GIB EPOCHS: a second thread stores, too. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, STORES = 1000 };
static const uint64_t GIB = 1ull << 30;

static uint64_t size;
static char *map;

static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* Where epoch `epoch` stores its `i`-th number: in a GiB that lies in the middle of the file. */
static uint64_t *place(uint64_t epoch, uint64_t i) {
  uint64_t at = mixed(epoch * STORES + i + 1) % (GIB - 8) & ~7ull;
  return (uint64_t *)(map + size / 2 + at);
}

/* The number of epochs that are there; fewer than that, or a part of the next, ends the program. */
static uint64_t check(void) {
  uint64_t last = *(volatile uint64_t *)map;
  for (uint64_t epoch = last > 40 ? last - 40 : 1; epoch <= last; epoch++)
    for (uint64_t i = 0; i < STORES; i++) {
      uint64_t there = *place(epoch, i);
      CHECK(there >= epoch && there <= last);
    }
  for (uint64_t i = 0; i < STORES; i++)
    CHECK(*place(last + 1, i) <= last);
  CHECK(*(volatile uint64_t *)(map + size - 8) == last);
  return last;
}

static void one_epoch(uint64_t epoch) {
  for (uint64_t i = 0; i < STORES; i++)
    *place(epoch, i) = epoch;
  *(volatile uint64_t *)map = epoch;
  *(volatile uint64_t *)(map + size - 8) = epoch;
  CHECK(msync(map, size, MS_SYNC) == 0);
}

/* Of memory that is no file's, in MiB. */
static long own_memory(void) {
  static char text[8192];
  int fd = open("/proc/self/status", O_RDONLY);
  ssize_t n = read(fd, text, sizeof text - 1);
  CHECK(n > 0);
  close(fd);
  text[n] = 0;
  char *line = strstr(text, "RssAnon:");
  CHECK(line);
  return atol(line + 8) >> 10;
}

static sigjmp_buf after_fault;
static void faulted(int signal) {
  (void)signal;
  siglongjmp(after_fault, 1);
}
/* Whether a byte can be read; else there is a signal. */
static bool is_there(const volatile char *at) {
  if (sigsetjmp(after_fault, 1))
    return false;
  (void)*at;
  return true;
}

static void *stores_too(void *end) {
  volatile uint64_t *mine = (volatile uint64_t *)(map + PAGE);
  while (!*(volatile bool *)end)
    for (int i = 0; i < 64; i++)
      mine[i * 512]++;
  return NULL;
}

static void traps(int fd, const char *path) {
  char byte, bytes[PAGE];
  char *at = map + size / 2;
  /* Stores show in reads and writes in loads, on either side of a SYNC. */
  at[0] = 'a';
  at[PAGE] = 'b';
  CHECK(pread(fd, &byte, 1, (off_t)(size / 2)) == 1 && byte == 'a');
  CHECK(pwrite(fd, "c", 1, (off_t)(size / 2 + 1)) == 1 && at[1] == 'c' && at[0] == 'a');
  CHECK(fsync(fd) == 0);
  CHECK(pwrite(fd, "d", 1, (off_t)(size / 2 + 2 * PAGE)) == 1 && at[2 * PAGE] == 'd');
  CHECK(pread(fd, bytes, 3, (off_t)(size / 2)) == 3 && memcmp(bytes, "ac\0", 3) == 0);
  /* Advice that gives up pages of a shared map, or makes copies of all, changes no byte and takes no memory. */
  at[3 * PAGE] = 'e';
  long before = own_memory();
  int advices[] = {MADV_DONTNEED, MADV_COLD, MADV_RANDOM, MADV_NORMAL, MADV_WILLNEED};
  for (unsigned i = 0; i < sizeof advices / sizeof *advices; i++)
    CHECK(madvise(at, 64 * PAGE, advices[i]) == 0 || advices[i] == MADV_COLD);
  CHECK(madvise(map + size / 4, GIB, 23 /* MADV_POPULATE_WRITE */) == 0 || errno == EINVAL);
  CHECK(posix_madvise(at, 64 * PAGE, POSIX_MADV_DONTNEED) == 0);
  FAILS(madvise(at, PAGE, MADV_FREE), EINVAL);
  FAILS(madvise(at, PAGE, MADV_REMOVE), EOPNOTSUPP);
  CHECK(at[0] == 'a' && at[PAGE] == 'b' && at[2 * PAGE] == 'd' && at[3 * PAGE] == 'e');
  CHECK(own_memory() < before + 16);
  CHECK(msync(at, PAGE, MS_SYNC | MS_INVALIDATE) == 0 && at[3 * PAGE] == 'e');
  /* All pages at once are read, not copied. */
  before = own_memory();
  char *second = mmap(NULL, GIB / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  CHECK(second == MAP_FAILED && errno == ENOMEM); /* there is a map that may be stored to */
  CHECK(munmap(map, 2 * GIB) == 0);
  second = mmap(NULL, GIB / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  CHECK(second != MAP_FAILED && own_memory() < before + 16);
  second[5] = 'f';
  CHECK(munmap(second, GIB / 2) == 0); /* with what no SYNC has seen */
  CHECK(pread(fd, &byte, 1, 5) == 1 && byte == 'f');
  second = mmap(NULL, GIB, PROT_READ, MAP_SHARED, fd, 0);
  char *third = mmap(NULL, GIB, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(second != MAP_FAILED && third != MAP_FAILED && second[5] == 'f');
  CHECK(pwrite(fd, "ghi", 3, 4) == 3 && second[5] == 'h' && third[6] == 'i');
  FAILS(mprotect(third, GIB, PROT_READ | PROT_WRITE), ENOMEM);
  CHECK(munmap(third, GIB) == 0 && mprotect(second, GIB, PROT_READ | PROT_WRITE) == 0);
  second[7] = 'j';
  CHECK(mprotect(second, GIB, PROT_NONE) == 0);
  CHECK(pread(fd, bytes, 4, 4) == 4 && memcmp(bytes, "ghij", 4) == 0);
  CHECK(fsync(fd) == 0 && mprotect(second, GIB, PROT_READ) == 0 && second[7] == 'j');
  /* Moved, and longer. */
  second = mremap(second, GIB, 2 * GIB, MREMAP_MAYMOVE);
  CHECK(second != MAP_FAILED && second[7] == 'j' && mprotect(second, 2 * GIB, PROT_READ | PROT_WRITE) == 0);
  CHECK(pwrite(fd, "k", 1, (off_t)(GIB + 9)) == 1 && second[GIB + 9] == 'k');
  second[GIB + 10] = 'l';
  CHECK(msync(second, 2 * GIB, MS_SYNC) == 0 && pread(fd, &byte, 1, (off_t)(GIB + 10)) == 1 && byte == 'l');
  /* A child does not get it: nothing that it stores could be seen. */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct sigaction action = {.sa_handler = faulted};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    _exit(is_there(second) ? 1 : 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(second[7] == 'j');
  /* The end moves: a signal behind it, zeros where it was before. */
  struct sigaction action = {.sa_handler = faulted};
  CHECK(sigaction(SIGBUS, &action, NULL) == 0);
  CHECK(munmap(second, 2 * GIB) == 0 && munmap(map + 2 * GIB, size - 2 * GIB) == 0);
  off_t near = (off_t)(size - 64 * PAGE); /* what is cut and grows again may be written, with zeros */
  second = mmap(NULL, 2 * GIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(size - GIB));
  char *tail = second + GIB - 64 * PAGE;
  CHECK(second != MAP_FAILED && !is_there(second + GIB) && is_there(second + GIB - 1));
  CHECK(pwrite(fd, "k", 1, near + 9) == 1);
  CHECK(ftruncate(fd, near + 10) == 0);
  CHECK(is_there(tail + 9) && !is_there(tail + PAGE) && tail[9] == 'k' && tail[10] == 0);
  tail[20] = 'z'; /* behind the end */
  CHECK(ftruncate(fd, near + 10 * PAGE) == 0);
  CHECK(tail[20] == 0 && tail[3 * PAGE] == 0);
  tail[3 * PAGE] = 'm';
  CHECK(fsync(fd) == 0);
  CHECK(pwrite(fd, "n", 1, near + 3 * PAGE + 1) == 1 && tail[3 * PAGE] == 'm' && tail[3 * PAGE + 1] == 'n');
  CHECK(ftruncate(fd, (off_t)size + 4 * PAGE) == 0 && tail[11 * PAGE] == 0 && tail[3 * PAGE] == 'm');
  CHECK(is_there(second + GIB + 3 * PAGE) && fsync(fd) == 0);
  /* Another name, and then none. */
  char other[4096];
  snprintf(other, sizeof other, "%s-other", path);
  CHECK(rename(path, other) == 0);
  tail[5 * PAGE] = 'o';
  CHECK(fsync(fd) == 0 && pread(fd, &byte, 1, near + 5 * PAGE) == 1 && byte == 'o');
  CHECK(close(fd) == 0);
  tail[5 * PAGE] = 'p';
  CHECK(msync(second, 2 * GIB, MS_SYNC) == 0);
  tail[5 * PAGE + 1] = 'q';
  CHECK(munmap(second, 2 * GIB) == 0);
  fd = open(other, O_RDWR);
  CHECK(pread(fd, bytes, 2, near + 5 * PAGE) == 2 && memcmp(bytes, "pq", 2) == 0);
  CHECK(close(fd) == 0 && unlink(other) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 4);
  const char *what = argv[2];
  size = (uint64_t)atol(argv[3]) * GIB;
  int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (strcmp(what, "other") == 0) {
    /* Beside a process that has it mapped: what a write, a map for writing and a map for reading give, and whether
     * a read shows an epoch. */
    uint64_t there = 0;
    int written = pwrite(fd, "x", 1, 100) == 1 ? 0 : errno;
    void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int failed = mapped == MAP_FAILED ? errno : 0;
    if (mapped != MAP_FAILED) munmap(mapped, PAGE); /* beside a map for writing there is no other */
    mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    int failed_to_read = mapped == MAP_FAILED ? errno : 0;
    ssize_t n = pread(fd, &there, sizeof there, 0);
    printf("%d %d %d %s\n", written, failed, failed_to_read, n == 8 && there > 0 ? "read" : n < 0 ? strerror(errno) : "nothing");
    return 0;
  }
  CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
  map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  if (strcmp(what, "traps") == 0) {
    traps(fd, argv[1]);
    return 0;
  }
  char *stored = map + size / 4 + 5;
  if (strcmp(what, "byte") == 0) {
    printf("%c\n", *stored);
    return 0;
  }
  if (strcmp(what, "leave") == 0) {
    *stored = argv[5][0];
    if (strcmp(argv[4], "_exit") == 0) _exit(0);
    if (strcmp(argv[4], "exec") == 0) execl("/bin/true", "true", (char *)NULL);
    if (strcmp(argv[4], "close") == 0) CHECK(close(fd) == 0 && munmap(map, size) == 0);
    return 0;
  }
  uint64_t epoch = check();
  if (strcmp(what, "check") == 0) {
    printf("%llu\n", (unsigned long long)epoch);
    return 0;
  }
  bool end = false;
  pthread_t thread;
  bool threads = strcmp(what, "threads") == 0;
  if (threads)
    CHECK(pthread_create(&thread, NULL, stores_too, &end) == 0);
  long most = strcmp(what, "memory") == 0 ? atol(argv[4]) : 1 << 30;
  long epochs = argc > 4 ? atol(argv[argc - 1]) : 1 << 30;
  long seen = 0;
  for (long i = 0; i < epochs; i++) {
    one_epoch(++epoch);
    if (strcmp(what, "stores") == 0) {
      char text[32];
      int n = snprintf(text, sizeof text, "%llu\n", (unsigned long long)epoch);
      CHECK(write(1, text, (size_t)n) == n);
    } else {
      long now = own_memory();
      seen = now > seen ? now : seen;
      CHECK(now <= most);
    }
  }
  if (threads) {
    volatile uint64_t *mine = (volatile uint64_t *)(map + PAGE);
    *(volatile bool *)&end = true;
    CHECK(pthread_join(thread, NULL) == 0 && fsync(fd) == 0);
    uint64_t number;
    CHECK(mine[0] > 0);
    for (int i = 0; i < 64; i++)
      CHECK(pread(fd, &number, 8, PAGE + i * PAGE) == 8 && number == mine[i * 512]);
  }
  check();
  printf("%ld MiB\n", seen);
  return 0;
}
