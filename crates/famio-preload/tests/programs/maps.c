/* Maps of a file: what the program stores, what it sees, and what is there after a kill. argv[2] is the case. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define PAGE 4096
#define RW (PROT_READ | PROT_WRITE)

static bool atomic;

static int opened(const char *path, int flags) {
  int fd = open(path, flags, 0644);
  CHECK(fd >= 0);
  return fd;
}

/* A new file of this many pages, each filled with a letter, and a SYNC. */
static int filled(const char *path, int pages) {
  int fd = opened(path, O_RDWR | O_CREAT | O_TRUNC);
  char page[PAGE];
  for (int i = 0; i < pages; i++) {
    memset(page, 'a' + i, PAGE);
    CHECK(pwrite(fd, page, PAGE, (off_t)i * PAGE) == PAGE);
  }
  CHECK(fsync(fd) == 0);
  return fd;
}

static char *mapped(int fd, size_t length, int prot, off_t offset) {
  char *map = mmap(NULL, length, prot, MAP_SHARED, fd, offset);
  CHECK(map != MAP_FAILED);
  return map;
}

static char at(const char *path, off_t offset) {
  char byte = 0;
  int fd = opened(path, O_RDONLY);
  CHECK(pread(fd, &byte, 1, offset) == 1);
  CHECK(close(fd) == 0);
  return byte;
}

static sigjmp_buf back;
static void caught(int signal) { siglongjmp(back, signal); }

/* The signal that a load from there causes, or 0. */
static int load(volatile const char *where) {
  struct sigaction action = {.sa_handler = caught}, bus, segv;
  sigaction(SIGBUS, &action, &bus);
  sigaction(SIGSEGV, &action, &segv);
  int signal = sigsetjmp(back, 1);
  if (signal == 0) (void)*where;
  sigaction(SIGBUS, &bus, NULL);
  sigaction(SIGSEGV, &segv, NULL);
  return signal;
}

static void child_ends_well(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void stores(const char *path) {
  int fd = filled(path, 4);
  char *one = mapped(fd, 4 * PAGE, RW, 0), *two = mapped(fd, 2 * PAGE, RW, PAGE), byte;
  one[PAGE + 5] = 'X';
  CHECK(two[5] == 'X' && pread(fd, &byte, 1, PAGE + 5) == 1 && byte == 'X');
  two[PAGE] = 'Y';
  CHECK(one[2 * PAGE] == 'Y');
  CHECK(pwrite(fd, "Z", 1, 3 * PAGE) == 1 && one[3 * PAGE] == 'Z');
  WORKS(msync(two, PAGE, MS_SYNC));
  /* A read-only map, made before and after. */
  char *reads = mapped(fd, 4 * PAGE, PROT_READ, 0);
  CHECK(reads[PAGE + 5] == 'X' && reads[3 * PAGE] == 'Z');
  one[7] = 'V';
  CHECK(reads[7] == 'V' && load(reads) == 0);
  /* Stores at the source and the destination of a call. */
  CHECK(pwrite(fd, one, 8, 2 * PAGE + 100) == 8 && memcmp(two + PAGE + 100, "aaaaaaaV", 8) == 0);
  CHECK(pread(fd, one + 64, 8, 0) == 8 && one[71] == 'V');
  WORKS(munmap(one, 4 * PAGE));
  WORKS(munmap(reads, 4 * PAGE));
  CHECK(pread(fd, &byte, 1, 71) == 1 && byte == 'V');
  WORKS(munmap(two, 2 * PAGE));
  CHECK(close(fd) == 0 && at(path, 71) == 'V' && at(path, PAGE + 5) == 'X');
}

static void read_only(const char *path) {
  int fd = filled(path, 2);
  CHECK(close(fd) == 0);
  int ro = opened(path, O_RDONLY);
  char *early = mapped(ro, 2 * PAGE, PROT_READ, 0);
  CHECK(early[0] == 'a');
  fd = opened(path, O_RDWR);
  char *both = mapped(fd, 2 * PAGE, PROT_READ, 0);
  CHECK(pwrite(fd, "1", 1, 0) == 1);
  CHECK(early[0] == '1' && both[0] == '1');
  char *late = mapped(ro, 2 * PAGE, PROT_READ, 0);
  CHECK(pwrite(fd, "2", 1, PAGE) == 1);
  CHECK(early[PAGE] == '2' && both[PAGE] == '2' && late[PAGE] == '2' && late[0] == '1');
  FAILS(mprotect(early, PAGE, RW), EACCES);
  FAILS(mprotect(late, PAGE, RW), EACCES);
  CHECK(load(early) == 0 && early[0] == '1');
  WORKS(mprotect(both, PAGE, RW));
  both[1] = '3';
  CHECK(early[1] == '3' && late[1] == '3');
  WORKS(mprotect(both, PAGE, PROT_READ));
  CHECK(fsync(fd) == 0);
  WORKS(mprotect(both, 2 * PAGE, PROT_NONE));
  CHECK(load(both) == SIGSEGV);
  WORKS(mprotect(both + PAGE, PAGE, RW));
  both[PAGE + 1] = '4';
  CHECK(early[PAGE + 1] == '4');
  CHECK(close(ro) == 0 && close(fd) == 0);
  CHECK(early[PAGE + 1] == '4');
  WORKS(munmap(early, 2 * PAGE));
  WORKS(munmap(both, 2 * PAGE));
  WORKS(munmap(late, 2 * PAGE));
  CHECK(at(path, PAGE + 1) == '4' && at(path, 1) == '3');
  /* Becomes writable before anything was written. */
  fd = opened(path, O_RDWR);
  early = mapped(fd, 2 * PAGE, PROT_READ, 0);
  WORKS(mprotect(early, PAGE, RW));
  early[2] = '5';
  CHECK(close(fd) == 0);
  WORKS(munmap(early, 2 * PAGE));
  CHECK(at(path, 2) == '5');
}

static void after_close(const char *path) {
  int fd = filled(path, 2);
  CHECK(close(fd) == 0);
  fd = opened(path, O_RDWR);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  CHECK(close(fd) == 0);
  map[0] = 'X';
  CHECK(at(path, 0) == 'X');
  fd = opened(path, O_RDWR);
  CHECK(pwrite(fd, "Y", 1, PAGE) == 1 && map[PAGE] == 'Y');
  map[PAGE + 1] = 'Z';
  char byte;
  CHECK(pread(fd, &byte, 1, PAGE + 1) == 1 && byte == 'Z');
  CHECK(close(fd) == 0);
  WORKS(msync(map, PAGE, MS_SYNC));
  map[PAGE + 2] = 'W';
  WORKS(munmap(map, 2 * PAGE));
  CHECK(at(path, 0) == 'X' && at(path, PAGE + 1) == 'Z' && at(path, PAGE + 2) == 'W');
  /* Partly unmapped; the rest is unmapped at exit. */
  fd = opened(path, O_RDWR);
  map = mapped(fd, 2 * PAGE, RW, 0);
  map[3] = 'U';
  map[PAGE + 3] = 'T';
  WORKS(munmap(map, PAGE));
  CHECK(close(fd) == 0);
  map[PAGE + 4] = 'S';
}

static void remaps(const char *path) {
  int fd = filled(path, 4);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  map[0] = '1';
  map = mremap(map, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
  CHECK(map != MAP_FAILED && map[0] == '1' && map[3 * PAGE] == 'd');
  map[3 * PAGE] = '2';
  char *place = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(place != MAP_FAILED);
  char *moved = mremap(map, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 4 * PAGE);
  CHECK(moved == place + 4 * PAGE && moved[3 * PAGE] == '2' && load(map) == SIGSEGV);
  moved[3 * PAGE + 1] = '3';
  CHECK(pwrite(fd, "4", 1, PAGE) == 1 && moved[PAGE] == '4');
  /* Again; and smaller. */
  char *twice = mremap(moved, 0, 4 * PAGE, MREMAP_MAYMOVE);
  CHECK(twice != MAP_FAILED && twice[PAGE] == '4');
  twice[2] = '5';
  CHECK(moved[2] == '5');
  moved[2 * PAGE] = '6';
  CHECK(mremap(moved, 4 * PAGE, PAGE, 0) == moved && load(moved + PAGE) == SIGSEGV);
  WORKS(munmap(twice, 4 * PAGE));
  /* A refused target leaves the existing map as it is. */
  char *other = mapped(fd, PAGE, RW, PAGE);
  FAILS(mremap(moved, PAGE, PAGE, MREMAP_FIXED, other), EINVAL);
  FAILS(mremap(moved, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other + 1), EINVAL);
  FAILS(mremap(place, PAGE, (size_t)1 << 46, MREMAP_MAYMOVE | MREMAP_FIXED, other), EINVAL);
  other[9] = '7';
  CHECK(fsync(fd) == 0 && close(fd) == 0);
  other[10] = '8';
  WORKS(munmap(other, PAGE));
  WORKS(munmap(place, 16 * PAGE));
  CHECK(at(path, 0) == '1' && at(path, 2) == '5' && at(path, 3 * PAGE) == '2' && at(path, 3 * PAGE + 1) == '3');
  CHECK(at(path, PAGE) == '4' && at(path, 2 * PAGE) == '6' && at(path, PAGE + 9) == '7' && at(path, PAGE + 10) == '8');
}

static void fixed(const char *path) {
  int fd = filled(path, 4), zero = opened("/dev/zero", O_RDONLY);
  char *map = mapped(fd, 4 * PAGE, RW, 0);
  map[PAGE] = '1';
  map[2 * PAGE] = '2';
  /* Failing attempts change nothing. */
  FAILS(mmap(map, PAGE, RW, MAP_SHARED | MAP_FIXED, 12345, 0), EBADF);
  FAILS(mmap(map, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 1), EINVAL);
  FAILS(mmap(map + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, zero, 0), EACCES);
  FAILS(munmap(map + 1, PAGE), EINVAL);
  FAILS(munmap(map, SIZE_MAX), EINVAL);
  FAILS(munmap(map, 0), EINVAL);
  FAILS(mmap(map, SIZE_MAX, RW, MAP_SHARED | MAP_FIXED, fd, 0), ENOMEM);
  FAILS(mprotect(map, SIZE_MAX, RW), ENOMEM);
  FAILS(mmap(map, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0), EEXIST);
  map[0] = '0';
  map[PAGE + 1] = '3';
  CHECK(fsync(fd) == 0);
  map[5] = '7';
  CHECK(fsync(fd) == 0);
  /* Anonymous memory over the second page; the file over the third, shifted. */
  CHECK(mmap(map + PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map + PAGE);
  CHECK(map[PAGE] == 0);
  map[PAGE] = 'n';
  CHECK(mmap(map + 2 * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == map + 2 * PAGE);
  CHECK(map[2 * PAGE] == '0');
  map[2 * PAGE + 1] = '4';
  CHECK(map[1] == '4');
  map[3 * PAGE] = '5';
  CHECK(munmap(map, 4 * PAGE) == 0 && close(zero) == 0 && close(fd) == 0);
  CHECK(at(path, 0) == '0' && at(path, 1) == '4' && at(path, PAGE) == '1' && at(path, PAGE + 1) == '3');
  CHECK(at(path, 2 * PAGE) == '2' && at(path, 3 * PAGE) == '5' && at(path, 5) == '7');
  /* Read-only, before anything is written, over one of its own maps. */
  fd = opened(path, O_RDWR);
  map = mapped(fd, 2 * PAGE, PROT_READ, 0);
  CHECK(mmap(map, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, PAGE) == map && map[1] == '3');
  CHECK(pwrite(fd, "9", 1, PAGE + 1) == 1 && map[1] == '9');
  CHECK(munmap(map, 2 * PAGE) == 0 && close(fd) == 0);
}

static void cuts(const char *path) {
  int fd = filled(path, 4);
  char *map = mapped(fd, 6 * PAGE, RW, 0), byte;
  CHECK(load(map + 4 * PAGE) == SIGBUS && load(map + 4 * PAGE - 1) == 0);
  CHECK(ftruncate(fd, PAGE + 100) == 0);
  CHECK(map[PAGE + 99] == 'b' && map[PAGE + 100] == 0 && load(map + 2 * PAGE) == SIGBUS);
  map[PAGE + 99] = 'X';
  map[PAGE + 200] = 'Y'; /* beyond the end: belongs to no file */
  CHECK(ftruncate(fd, 3 * PAGE) == 0);
  CHECK(map[PAGE + 99] == 'X' && map[2 * PAGE] == 0);
  /* tmpfs in some kernels leaves it there. */
  CHECK(!atomic || map[PAGE + 200] == 0);
  map[PAGE + 201] = 'Z';
  CHECK(pread(fd, &byte, 1, PAGE + 201) == 1 && byte == 'Z');
  CHECK(msync(map, PAGE, MS_SYNC) == 0);
  CHECK(ftruncate(fd, 100) == 0);
  map[500] = 'Q'; /* as above */
  CHECK(pwrite(fd, "end", 3, 5 * PAGE) == 3);
  CHECK((!atomic || map[500] == 0) && map[5 * PAGE] == 'e' && map[4 * PAGE] == 0);
  map[4 * PAGE] = 'R';
  CHECK(ftruncate(fd, 0) == 0 && load(map) == SIGBUS);
  CHECK(pread(fd, &byte, 1, 0) == 0);
  CHECK(write(fd, "new", 3) == 3 && map[0] == 'n' && map[3] == 0);
  CHECK(fsync(fd) == 0);
  int again = opened(path, O_RDWR | O_TRUNC);
  CHECK(load(map) == SIGBUS);
  CHECK(fallocate(again, 0, 0, 2 * PAGE) == 0 && map[PAGE] == 0);
  map[PAGE] = 'S';
  CHECK(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0 && map[PAGE] == 0);
  map[PAGE + 1] = 'T';
  CHECK(close(again) == 0 && close(fd) == 0);
  CHECK(munmap(map, 6 * PAGE) == 0);
  CHECK(at(path, PAGE) == 0 && at(path, PAGE + 1) == 'T' && at(path, 0) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 2 * PAGE);
}

/* Holes that a program makes through the map. */
static void removes(const char *path) {
  int fd = filled(path, 2);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  if (madvise(map, PAGE, MADV_REMOVE) != 0) {
    CHECK(errno == EOPNOTSUPP);
    memset(map, 0, PAGE);
  }
  CHECK(fsync(fd) == 0 && close(fd) == 0 && munmap(map, 2 * PAGE) == 0);
  CHECK(at(path, 0) == 0 && at(path, PAGE) == 'b');
}

static void private(const char *path) {
  int fd = filled(path, 2), ro = opened(path, O_RDONLY);
  char *map = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, ro, 0), byte;
  CHECK(map != MAP_FAILED && map[0] == 'a' && map[PAGE] == 'b');
  map[0] = 'X';
  CHECK(fsync(fd) == 0 && pread(fd, &byte, 1, 0) == 1 && byte == 'a');
  CHECK(munmap(map, 2 * PAGE) == 0);
  char *shared = mapped(fd, 2 * PAGE, RW, 0);
  shared[1] = 'Y';
  map = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, PAGE);
  CHECK(map != MAP_FAILED && map[0] == 'b');
  map[0] = 'Z';
  CHECK(shared[PAGE] == 'b');
  map = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
  CHECK(map != MAP_FAILED && map[0] == 'a' && map[1] == 'Y');
  CHECK(close(fd) == 0 && close(ro) == 0 && munmap(shared, 2 * PAGE) == 0);
  CHECK(at(path, 0) == 'a' && at(path, 1) == 'Y' && at(path, PAGE) == 'b');
}

static void errors(const char *path) {
  int fd = filled(path, 2), ro = opened(path, O_RDONLY), wo = opened(path, O_WRONLY);
  FAILS(mmap(NULL, PAGE, RW, MAP_SHARED, ro, 0), EACCES);
  FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, wo, 0), EACCES);
  FAILS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, wo, 0), EACCES);
  FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, wo, 0), EACCES);
  FAILS(mmap(NULL, 0, RW, MAP_SHARED, fd, 0), EINVAL);
  FAILS(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 100), EINVAL);
  FAILS(mmap(NULL, PAGE, RW, 0, fd, 0), EINVAL);
  FAILS(mmap(NULL, SIZE_MAX, RW, MAP_SHARED, fd, 0), ENOMEM);
  FAILS(mmap(NULL, SIZE_MAX, PROT_READ, MAP_SHARED, ro, 0), ENOMEM);
  FAILS(mmap(NULL, PAGE, RW, MAP_SHARED, fd, -PAGE), EOVERFLOW);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  FAILS(msync(map + 1, PAGE, MS_SYNC), EINVAL);
  FAILS(msync(map, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
  FAILS(msync(map, PAGE, 1 << 10), EINVAL);
  WORKS(msync(map, PAGE, MS_ASYNC));
  WORKS(msync(map, 0, MS_SYNC));
  WORKS(msync(map, 2 * PAGE, MS_SYNC | MS_INVALIDATE));
  WORKS(munmap(map + PAGE, PAGE));
  FAILS(msync(map, 2 * PAGE, MS_SYNC), ENOMEM);
  WORKS(munmap(map, 2 * PAGE));
  FAILS(msync(map, PAGE, MS_SYNC), ENOMEM);
  FAILS(mprotect(map, PAGE, RW), ENOMEM);
  FAILS(mremap(map, PAGE, 2 * PAGE, 0), EFAULT);
  WORKS(munmap(map, PAGE));
  CHECK(close(fd) == 0 && close(ro) == 0 && close(wo) == 0);
}

/* Names that are removed while the file is mapped. */
static void names(const char *path) {
  char other[100];
  snprintf(other, sizeof other, "%s.other", path);
  int fd = filled(path, 2);
  char *map = mapped(fd, 2 * PAGE, RW, 0), byte;
  map[0] = '1';
  CHECK(rename(path, other) == 0);
  map[1] = '2';
  CHECK(pwrite(fd, "3", 1, 2) == 1 && map[2] == '3' && pread(fd, &byte, 1, 1) == 1 && byte == '2');
  CHECK(fsync(fd) == 0 && rename(other, path) == 0);
  map[3] = '4';
  CHECK(munmap(map, 2 * PAGE) == 0 && close(fd) == 0);
  CHECK(at(path, 0) == '1' && at(path, 1) == '2' && at(path, 2) == '3' && at(path, 3) == '4');

  /* Stored after the rename, unmapped, and the process that closes the file last can only read it. */
  fd = opened(path, O_RDWR);
  map = mapped(fd, 2 * PAGE, RW, 0);
  CHECK(rename(path, other) == 0 && rename(other, path) == 0);
  map[3] = 'x';
  int reader = opened(path, O_RDONLY);
  CHECK(munmap(map, 2 * PAGE) == 0 && close(fd) == 0 && close(reader) == 0 && at(path, 3) == 'x');

  /* A second name stays when the first is removed. */
  fd = opened(path, O_RDWR);
  map = mapped(fd, 2 * PAGE, RW, 0);
  map[0] = '5';
  CHECK(link(path, other) == 0 && unlink(path) == 0);
  map[1] = '6';
  CHECK(pwrite(fd, "7", 1, 2) == 1 && map[2] == '7' && map[1] == '6');
  map[3] = '8';
  map[1] = '9';
  CHECK(pread(fd, &byte, 1, 3) == 1 && byte == '8');
  CHECK(fsync(fd) == 0 && msync(map, PAGE, MS_SYNC) == 0);
  map[4] = 'A';
  CHECK(close(fd) == 0);
  map[5] = 'B';
  CHECK(munmap(map, 2 * PAGE) == 0);
  CHECK(rename(other, path) == 0);
  CHECK(at(path, 0) == '5' && at(path, 1) == '9' && at(path, 2) == '7' && at(path, 3) == '8');
  CHECK(at(path, 4) == 'A' && at(path, 5) == 'B');

  /* The name under which it was written is removed, and another one exists. */
  fd = opened(path, O_RDONLY);
  map = mapped(fd, 2 * PAGE, PROT_READ, 0);
  int writer;
  CHECK(close(fd) == 0 && link(path, other) == 0 && (writer = opened(other, O_RDWR)) >= 0);
  CHECK(pwrite(writer, "x", 1, 6) == 1 && close(writer) == 0 && unlink(other) == 0);
  fd = opened(path, O_RDWR);
  CHECK(pwrite(fd, "y", 1, 7) == 1 && map[6] == 'x' && map[7] == 'y');
  CHECK(!atomic || access(".famio", F_OK) == 0); /* it has a journal, so it was not demoted */
  CHECK(fsync(fd) == 0 && close(fd) == 0 && munmap(map, 2 * PAGE) == 0 && at(path, 7) == 'y');

  /* No name is left. */
  fd = opened(path, O_RDWR);
  map = mapped(fd, 2 * PAGE, RW, 0);
  map[0] = 'C';
  CHECK(unlink(path) == 0);
  map[1] = 'D';
  CHECK(pwrite(fd, "E", 1, 2) == 1 && memcmp(map, "CDE", 3) == 0);
  map[1] = 'F';
  CHECK(fsync(fd) == 0 && msync(map, PAGE, MS_SYNC) == 0 && pread(fd, &byte, 1, 1) == 1 && byte == 'F');
  CHECK(close(fd) == 0);
  map[0] = 'G';
  CHECK(memcmp(map, "GFE", 3) == 0);
  WORKS(munmap(map, 2 * PAGE));
}

/* The program's record locks: a descriptor of the library's must not drop them. */
static bool is_locked(const char *path) {
  pid_t child = fork();
  if (child == 0) {
    int other = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0);
    struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 15, .l_len = 1};
    long taken = inlined(SYS_fcntl, other, F_SETLK, (long)&wanted, 0);
    inlined(SYS_exit_group, other < 0 ? 2 : taken == -EAGAIN || taken == -EACCES, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
  return WEXITSTATUS(status) == 1;
}

static void locks(const char *path) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
  int fd = filled(path, 2);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  CHECK(fcntl(fd, F_SETLK, &lock) == 0 && is_locked(path));
  CHECK(munmap(map, 2 * PAGE) == 0 && is_locked(path));
  map = mapped(fd, 2 * PAGE, RW, 0);
  CHECK(is_locked(path));
  map[0] = '1';
  CHECK(close(fd) == 0 && !is_locked(path));
  fd = opened(path, O_RDWR);
  CHECK(fcntl(fd, F_SETLK, &lock) == 0 && is_locked(path));
  map[1] = '2';
  CHECK(msync(map, PAGE, MS_SYNC) == 0 && is_locked(path));
  CHECK(munmap(map, 2 * PAGE) == 0 && is_locked(path));
  CHECK(pwrite(fd, "3", 1, 2) == 1 && fsync(fd) == 0 && is_locked(path));
  CHECK(close(fd) == 0 && !is_locked(path));
  CHECK(at(path, 0) == '1' && at(path, 1) == '2' && at(path, 2) == '3');

  /* A child unmaps what its parent has mapped without a descriptor: that must drop no lock of the child's. */
  fd = open(path, O_RDONLY);
  map = mapped(fd, PAGE, PROT_READ, 0);
  CHECK(close(fd) == 0);
  pid_t child = fork();
  if (child == 0) {
    fd = open(path, O_RDWR);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && is_locked(path));
    CHECK(munmap(map, PAGE) == 0 && is_locked(path));
    exit(0);
  }
  child_ends_well(child);
  CHECK(munmap(map, PAGE) == 0);
}

static void streams(const char *path) {
  int fd = filled(path, 2);
  char *map = mapped(fd, 2 * PAGE, RW, 0), bytes[10];
  FILE *file = fdopen(fd, "r+");
  CHECK(file && fseek(file, 10, SEEK_SET) == 0 && fwrite("stream", 1, 6, file) == 6 && fflush(file) == 0);
  CHECK(memcmp(map + 10, "stream", 6) == 0);
  map[10] = 'S';
  CHECK(fseek(file, 10, SEEK_SET) == 0 && fread(bytes, 1, 6, file) == 6 && memcmp(bytes, "Stream", 6) == 0);
  CHECK(fclose(file) == 0);
  map[11] = 'T';
  CHECK(munmap(map, 2 * PAGE) == 0 && at(path, 11) == 'T');
}

static void by_number(const char *path) {
  int fd = filled(path, 2);
  char *map = (char *)syscall(SYS_mmap, NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && syscall(SYS_mprotect, map, PAGE, RW) == 0);
  map[0] = 'X';
  CHECK(syscall(SYS_msync, map, PAGE, MS_SYNC) == 0);
  map = (char *)syscall(SYS_mremap, map, PAGE, PAGE, 0, 0);
  CHECK(map != MAP_FAILED);
  map[1] = 'Y';
  CHECK(close(fd) == 0 && syscall(SYS_munmap, map, 2 * PAGE) == 0);
  CHECK(at(path, 0) == 'X' && at(path, 1) == 'Y');
}

/* Far beyond its size when it was mapped. */
static void grows(const char *path) {
  int fd = filled(path, 1);
  const size_t size = (size_t)64 << 20;
  char *map = mapped(fd, size, RW, 0), byte;
  CHECK(ftruncate(fd, size) == 0);
  map[size - 1] = 'X';
  CHECK(pread(fd, &byte, 1, (off_t)size - 1) == 1 && byte == 'X');
  CHECK(msync(map, size, MS_SYNC) == 0 && munmap(map, size) == 0 && close(fd) == 0);
  CHECK(at(path, (off_t)size - 1) == 'X' && at(path, (off_t)size / 2) == 0);
}

/* A reader beside a thread that cuts and extends: bytes that are always there are always read. */
static volatile bool ends;
static int racing;
static void *cutting(void *unused) {
  (void)unused;
  for (int i = 0; i < 20000; i++) CHECK(ftruncate(racing, i % 2 ? 16 * PAGE : PAGE) == 0);
  ends = true;
  return NULL;
}
static void race(const char *path) {
  racing = filled(path, 16);
  char *map = mapped(racing, 16 * PAGE, RW, 0);
  static char bytes[16 * PAGE];
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cutting, NULL) == 0);
  while (!ends) {
    ssize_t n = pread(racing, bytes, sizeof bytes, 0);
    CHECK(n >= PAGE && bytes[PAGE - 1] == 'a');
  }
  CHECK(pthread_join(thread, NULL) == 0 && munmap(map, 16 * PAGE) == 0 && close(racing) == 0);
}

/* The file's first map beside a thread that writes: it must show what was written, whichever came first. */
#define WRITTEN 64
static volatile int at_block;
static void *writing(void *unused) {
  (void)unused;
  char page[PAGE];
  memset(page, 'Z', PAGE);
  for (at_block = 0; at_block < WRITTEN; at_block++)
    CHECK(pwrite(racing, page, PAGE, (off_t)at_block * PAGE) == PAGE);
  return NULL;
}
/* If each session costs flushes. */
static bool on_a_disk(const char *path) {
  struct statfs there;
  int fd = open(path, O_RDONLY | O_CREAT, 0600);
  CHECK(fd >= 0 && fstatfs(fd, &there) == 0 && close(fd) == 0);
  return there.f_type != 0x01021994; /* tmpfs */
}

static void first(const char *path) {
  for (int round = 0; round < (on_a_disk(path) ? 40 : 200); round++) {
    racing = filled(path, WRITTEN);
    at_block = -1;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, writing, NULL) == 0);
    while (at_block < round % WRITTEN) {}
    char *map = mapped(racing, WRITTEN * PAGE, RW, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < WRITTEN; i++) CHECK(map[i * PAGE] == 'Z' && map[i * PAGE + PAGE - 1] == 'Z');
    CHECK(munmap(map, WRITTEN * PAGE) == 0 && close(racing) == 0 && unlink(path) == 0);
  }
}

/* Maps made at other maps' addresses while files are opened: locks must have one order. */
static void *opening(void *path) {
  while (!ends) close(opened(path, O_RDWR));
  return NULL;
}
static void orders(const char *path) {
  char other[100];
  snprintf(other, sizeof other, "%s.other", path);
  close(filled(other, 2));
  close(filled(path, 2));
  pthread_t threads[3];
  CHECK(pthread_create(&threads[0], NULL, opening, (void *)path) == 0);
  CHECK(pthread_create(&threads[1], NULL, opening, other) == 0);
  int times = on_a_disk(path) ? 500 : 5000;
  for (int i = 0; i < times; i++) {
    int fd = opened(other, O_RDWR), ro = opened(path, O_RDONLY);
    char *map = mapped(fd, 2 * PAGE, RW, 0);
    map[0] = (char)i;
    CHECK(close(fd) == 0);
    CHECK(mmap(map, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, ro, 0) == map && map[0] == 'a');
    CHECK(close(ro) == 0 && munmap(map, 2 * PAGE) == 0);
  }
  ends = true;
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(at(other, 0) == (char)(times - 1) && unlink(other) == 0);
}

/* Only under the interposer. */

static void forks(const char *path) {
  int fd = filled(path, 2);
  char *map = mapped(fd, 2 * PAGE, RW, 0);
  for (int how = 0; how < 4; how++) {
    pid_t child = fork();
    if (child == 0) {
      map[how] = 'X';
      if (how == 1 && atomic) FAILS(msync(map, PAGE, MS_SYNC), EBUSY);
      if (how == 1) CHECK(pwrite(fd, "!", 1, 100) == 1 && map[100] == '!');
      if (how == 2) CHECK(munmap(map, 2 * PAGE) == 0 && close(fd) == 0);
      if (how == 3) CHECK(mprotect(map, PAGE, PROT_READ) == 0 && mprotect(map, PAGE, RW) == 0);
      exit(0);
    }
    child_ends_well(child);
    CHECK(map[how] == 'X' && map[100] == (how < 1 ? 'a' : '!'));
  }
  CHECK(fsync(fd) == 0 && close(fd) == 0);
  pid_t child = fork();
  if (child == 0) {
    map[4] = 'X';
    exit(0);
  }
  child_ends_well(child);
  CHECK(msync(map, PAGE, MS_SYNC) == 0 && at(path, 4) == 'X');
  CHECK(munmap(map, 2 * PAGE) == 0 && memcmp((char[]){at(path, 0), at(path, 3)}, "XX", 2) == 0);
}

static void killed(void) { kill(getpid(), SIGKILL); }

/* Epochs of stores and writes, each with a SYNC of one kind; then both again without one. */
static void kills(const char *path, const char *how) {
  int fd = filled(path, 4);
  int dsync = opened(path, O_RDWR | O_DSYNC);
  char *map = mapped(fd, 4 * PAGE, RW, 0), *two = mapped(fd, PAGE, RW, 2 * PAGE);
  if (!strcmp(how, "nothing")) {
    map[0] = 'X';
    CHECK(pwrite(fd, "X", 1, PAGE) == 1);
    killed();
  }
  map[0] = '1';
  two[0] = '1';
  CHECK(pwrite(fd, "1", 1, PAGE) == 1);
  if (!strcmp(how, "gone")) {
    CHECK(close(fd) == 0 && close(dsync) == 0 && munmap(map, 4 * PAGE) == 0);
    CHECK(msync(two, PAGE, MS_SYNC) == 0);
    two[1] = 'X';
    killed();
  }
  if (!strncmp(how, "mapped", 6)) {
    /* Only maps are left. */
    CHECK(close(fd) == 0 && close(dsync) == 0);
    if (!strcmp(how, "mapped-exec")) CHECK(execl("/bin/true", "true", NULL) == 0);
    sync();
    map[1] = 'X';
    killed();
  }
  if (!strcmp(how, "msync")) CHECK(msync(two, 1, MS_SYNC) == 0);
  if (!strcmp(how, "fsync")) CHECK(fsync(fd) == 0);
  if (!strcmp(how, "fdatasync")) CHECK(fdatasync(fd) == 0);
  if (!strcmp(how, "range")) CHECK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
  if (!strcmp(how, "dsync")) CHECK(pwrite(dsync, "1", 1, 3 * PAGE) == 1);
  if (!strcmp(how, "sync")) sync();
  if (!strcmp(how, "syncfs")) CHECK(syncfs(fd) == 0);
  if (!strcmp(how, "exec")) {
    CHECK(execl("/bin/true", "true", NULL) == 0);
  }
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "failed")) {
    FAILS(execl("/no/such/program", "true", NULL), ENOENT);
  }
  map[1] = 'X';
  two[1] = 'X';
  CHECK(pwrite(fd, "X", 1, PAGE + 1) == 1);
  CHECK(munmap(map, PAGE) == 0);
  killed();
}

/* Threads that store at their own places, each round the round's number into both of its words, and finally which
 * round is complete; one thread SYNCs between rounds (a barrier), another one at any time. */
enum { THREADS = 3, WORDS = 64 };
static uint64_t *words;
static pthread_barrier_t barrier;
static void *storing(void *number) {
  uint64_t *mine = words + (size_t)(uintptr_t)number * 3 * 512;
  for (uint64_t round = 1;; round++) {
    for (int i = 0; i < WORDS; i++) __atomic_store_n(&mine[i * 24], round, __ATOMIC_RELAXED);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}
static void *syncing(void *fd) {
  for (;;) CHECK(fsync((int)(uintptr_t)fd) == 0);
  return NULL;
}
static void torn(const char *path, bool quiet) {
  int fd = opened(path, O_RDWR | O_CREAT | O_TRUNC);
  CHECK(ftruncate(fd, 16 * PAGE) == 0 && fsync(fd) == 0);
  words = (uint64_t *)mapped(fd, 16 * PAGE, RW, 0);
  pthread_t thread;
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, storing, (void *)i) == 0);
  if (!quiet) CHECK(pthread_create(&thread, NULL, syncing, (void *)(uintptr_t)fd) == 0);
  for (uint64_t round = 1;; round++) {
    pthread_barrier_wait(&barrier);
    CHECK(pwrite(fd, &round, sizeof round, 15 * PAGE) == sizeof round);
    CHECK((round % 2 ? msync(words, PAGE, MS_SYNC) : fdatasync(fd)) == 0);
    CHECK(write(1, &round, sizeof round) == sizeof round);
    pthread_barrier_wait(&barrier);
  }
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *path = argv[1], *what = argv[2];
  atomic = strstr(path, "atomic") != NULL;
  alarm(600); /* a hang is a failure; a slow disk is not */
#define ON(name) \
  if (!strcmp(what, #name)) name(path)
  ON(stores);
  ON(read_only);
  ON(after_close);
  ON(remaps);
  ON(fixed);
  ON(cuts);
  ON(removes);
  ON(private);
  ON(errors);
  ON(names);
  ON(locks);
  ON(streams);
  ON(by_number);
  ON(grows);
  ON(race);
  ON(first);
  ON(orders);
  ON(forks);
  if (!strcmp(what, "kills")) kills(path, argv[3]);
  if (!strcmp(what, "torn")) torn(path, argc > 3);
  return 0;
}
