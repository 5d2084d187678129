/* The write lease under the interposer: a process that shares the description, or wants leases itself, gets the
 * file without the lease and with its committed contents; other opens of the file by this process return. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BLOCKS 20
#define SIZE (BLOCKS * 4096)
#define O_LARGEFILE_ 0100000 /* glibc defines it as 0 */

static char committed[SIZE], now[SIZE], seen[SIZE + 1];
static const char *path;
static int number;

static int lease_of(int fd) { return (int)inlined(SYS_fcntl, fd, F_GETLEASE, 0, 0); }

/* No byte is 0, however many writes the wait for a lease takes. */
static void put(int fd, int at, int length) {
  memset(now + at, 1 + number++ % 255, (size_t)length);
  CHECK(pwrite(fd, now + at, (size_t)length, at) == length);
}

static void sync_it(int fd) {
  CHECK(fsync(fd) == 0);
  memcpy(committed, now, SIZE);
}

/* Opens it, waits for the lease, and leaves an open epoch that was written with alternate. */
static int leased(int fd) {
  if (fd < 0) {
    fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && pwrite(fd, now, SIZE, 0) == SIZE);
    sync_it(fd);
  }
  while (lease_of(fd) != F_WRLCK) {
    put(fd, 0, 100);
    sync_it(fd);
    sched_yield();
  }
  for (int epoch = 0; epoch < 3; epoch++) {
    sync_it(fd);
    for (int block = 0; block < BLOCKS; block++) put(fd, block * 4096 + epoch * 64, 200 + 100 * epoch);
  }
  CHECK(lease_of(fd) == F_WRLCK);
  CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_LARGEFILE_)); /* the kernel adds O_ASYNC for the lease */
  return fd;
}

/* Through a descriptor that the library does not know, or through one of its own, unseen. */
static void shows(int fd, const char *expected) {
  CHECK(inlined(SYS_pread64, fd, (long)seen, SIZE + 1, 0) == SIZE);
  CHECK(memcmp(seen, expected, SIZE) == 0);
}

static void reads(int fd) {
  CHECK(pread(fd, seen, SIZE + 1, 0) == SIZE);
  CHECK(memcmp(seen, now, SIZE) == 0);
}

static void stays_without(int fd) {
  for (int epoch = 0; epoch < 1000; epoch++) {
    put(fd, epoch, 64);
    sync_it(fd);
    CHECK(lease_of(fd) == F_UNLCK);
  }
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  path = argv[1];
  if (argc == 4) { /* after exec: everything that the previous program wrote must be there */
    int inherited = atoi(argv[2]), expected = atoi(argv[3]), fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && lease_of(fd) == F_UNLCK && lease_of(inherited) == F_UNLCK);
    CHECK(pread(expected, now, SIZE, 0) == SIZE);
    reads(inherited);
    reads(fd);
    return 0;
  }

  /* A second open, by the library and past it, and under another name. */
  int fd = leased(-1);
  int second = open(path, O_RDONLY);
  CHECK(second >= 0 && lease_of(fd) == F_UNLCK);
  shows(fd, committed);
  reads(second);
  reads(fd);
  CHECK(close(second) == 0);
  leased(fd);
  CHECK(link(path, "other name") == 0);
  leased(fd);
  for (int turn = 0; turn < 2; turn++) {
    const char *name = turn ? "other name" : path;
    second = (int)inlined(SYS_openat, AT_FDCWD, (long)name, O_RDONLY, 0);
    CHECK(second >= 0 && lease_of(fd) == F_UNLCK);
    shows(second, committed);
    reads(fd);
    CHECK(inlined(SYS_close, second, 0, 0, 0) == 0);
    leased(fd);
  }
  second = open("other name", O_RDWR);
  CHECK(second >= 0 && lease_of(fd) == F_UNLCK);
  reads(second);
  CHECK(close(second) == 0 && unlink("other name") == 0);

  /* A process that queries leases or owners finds what it has set: nothing. */
  leased(fd);
  CHECK(fcntl(fd, F_GETLEASE) == F_UNLCK && fcntl(fd, F_GETOWN) == 0 && fcntl(fd, F_GETSIG) == 0);
  shows(fd, committed);
  stays_without(fd);
  CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && fcntl(fd, F_GETLEASE) == F_WRLCK);
  CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 && close(fd) == 0);
  int commands[][2] = {{F_SETSIG, SIGUSR1}, {F_SETOWN, getpid()}, {F_SETLEASE, F_WRLCK}};
  for (int i = 0; i < 3; i++) {
    fd = leased(-1);
    CHECK(fcntl(fd, commands[i][0], commands[i][1]) == 0);
    for (int epoch = 0; epoch < 500; epoch++) {
      put(fd, epoch, 64);
      sync_it(fd);
    }
    if (i == 0) CHECK(fcntl(fd, F_GETSIG) == SIGUSR1);
    if (i == 1) CHECK(fcntl(fd, F_GETOWN) == getpid());
    if (i == 2) CHECK(fcntl(fd, F_GETLEASE) == F_WRLCK && fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
    CHECK(close(fd) == 0);
  }

  /* fork: the child shares the description. */
  fd = leased(-1);
  pid_t child = fork();
  if (child == 0) {
    if (lease_of(fd) != F_UNLCK) _exit(1);
    if (inlined(SYS_pread64, fd, (long)seen, SIZE + 1, 0) != SIZE || memcmp(seen, committed, SIZE) != 0) _exit(2);
    _exit(7);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  reads(fd);
  stays_without(fd);
  CHECK(close(fd) == 0);

  /* Demoted. */
  CHECK(rename(path, "atomic again") == 0);
  path = "atomic again";
  fd = leased(-1);
  CHECK(dup2(fd, STDIN_FILENO) == STDIN_FILENO && lease_of(fd) == F_UNLCK);
  CHECK(pread(STDIN_FILENO, seen, SIZE, 0) == SIZE && memcmp(seen, now, SIZE) == 0);
  CHECK(close(STDIN_FILENO) == 0 && close(fd) == 0 && open("/dev/null", O_RDONLY) == STDIN_FILENO);

  /* The last descriptor is closed, and a map stays: an outsider sees what is committed, and the map what was
   * written. */
  path = "atomic mapped";
  fd = leased(-1);
  char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  leased(fd);
  CHECK(close(fd) == 0);
  second = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_NONBLOCK, 0);
  CHECK(second >= 0); /* no process gives the lease up any more: the open would wait until the kernel takes it away */
  shows(second, committed);
  CHECK(memcmp(map, now, SIZE) == 0);
  CHECK(munmap(map, SIZE) == 0);
  shows(second, now);
  CHECK(inlined(SYS_close, second, 0, 0, 0) == 0);

  path = "atomic third";
  fd = leased(-1);
  int expected = memfd_create("expected", 0);
  CHECK(expected >= 0 && write(expected, now, SIZE) == SIZE);
  char numbers[2][16];
  snprintf(numbers[0], sizeof numbers[0], "%d", fd);
  snprintf(numbers[1], sizeof numbers[1], "%d", expected);
  execl(argv[0], argv[0], path, numbers[0], numbers[1], (char *)NULL);
  CHECK(!"exec");
}
