/* A handler that runs while its thread is in malloc, and makes the calls that POSIX lists as async-signal-safe. The
 * allocator here raises the signal itself, with its lock held, so that any use of it on that thread is detected at
 * once. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>

static _Alignas(16) char room[256 << 20];
static size_t used;
static int holder;         /* the thread that is in the allocator */
static volatile int which = SIGSEGV;
static __thread volatile int armed; /* raise the signal when this thread next calls the allocator */

static void enter(const char *what) {
  int me = (int)inlined(SYS_gettid, 0, 0, 0, 0), nobody = 0;
  while (!__atomic_compare_exchange_n(&holder, &nobody, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    if (nobody == me) {
      inlined(SYS_write, 2, (long)what, (long)strlen(what), 0);
      inlined(SYS_write, 2, (long)": the allocator was entered again\n", 34, 0);
      inlined(SYS_exit_group, 77, 0, 0, 0);
    }
    nobody = 0;
    inlined(SYS_sched_yield, 0, 0, 0, 0);
  }
  if (armed) {
    armed = 0;
    raise(which);
  }
}

static void leave(void) { __atomic_store_n(&holder, 0, __ATOMIC_RELEASE); }

static void *take(size_t size) {
  size_t start = used + 16;
  used = (start + size + 15) & ~(size_t)15;
  if (used > sizeof room) abort();
  *(size_t *)(room + start - 16) = size;
  return room + start;
}

void *malloc(size_t size) {
  enter("malloc");
  void *memory = take(size);
  leave();
  return memory;
}
void free(void *memory) {
  if (!memory) return;
  enter("free");
  leave();
}
void *calloc(size_t count, size_t size) {
  enter("calloc");
  void *memory = take(count * size);
  leave();
  return memory; /* never used before */
}
void *realloc(void *memory, size_t size) {
  enter("realloc");
  void *new = take(size);
  if (memory) {
    size_t old = *(size_t *)((char *)memory - 16);
    memcpy(new, memory, old < size ? old : size);
  }
  leave();
  return new;
}

enum { BLOCK = 5000 };
static const char *path, *other;
static int fd = -1;
static volatile sig_atomic_t handled;
static char bytes[BLOCK], seen[BLOCK];

/* Opened, written, synced, read, and closed for the last time. */
static void whole_life(const char *name) {
  struct stat st;
  int own = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(own >= 0);
  memset(bytes, 'a' + handled % 26, sizeof bytes);
  CHECK(write(own, bytes, sizeof bytes) == BLOCK);
  CHECK(pwrite(own, "fresh", 5, 100) == 5 && fsync(own) == 0);
  CHECK(pwrite(own, "FRESH", 5, 100) == 5 && fdatasync(own) == 0);
  CHECK(lseek(own, 100, SEEK_SET) == 100 && read(own, seen, 6) == 6 && memcmp(seen, "FRESH", 5) == 0 && seen[5] == bytes[0]);
  struct iovec parts[2] = {{bytes, 10}, {bytes + 10, 20}}, into[2] = {{seen, 3}, {seen + 3, 27}};
  CHECK(lseek(own, 0, SEEK_END) == BLOCK && writev(own, parts, 2) == 30);
  CHECK(lseek(own, BLOCK, SEEK_SET) == BLOCK && readv(own, into, 2) == 30 && memcmp(seen, bytes, 30) == 0);
  CHECK(fstat(own, &st) == 0 && st.st_size == BLOCK + 30 && stat(name, &st) == 0 && st.st_size == BLOCK + 30);
  CHECK(ftruncate(own, 200) == 0 && fstat(own, &st) == 0 && st.st_size == 200);
  int copy = dup(own);
  CHECK(copy >= 0 && fcntl(copy, F_GETFL) >= 0 && dup2(own, copy) == copy);
  struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
  CHECK(fcntl(own, F_SETLK, &lock) == 0);
  CHECK(pread(copy, seen, sizeof seen, 0) == 200 && close(copy) == 0);
  CHECK(close(own) == 0);
}

static void on_signal(int number) {
  int saved = errno;
  struct stat st;
  CHECK(number == which);
  char line[32];
  long at = handled * 8L;
  memcpy(line, "handler\n", 8);
  CHECK(pwrite(fd, line, 8, at) == 8);
  CHECK(fsync(fd) == 0);
  CHECK(pread(fd, seen, 8, at) == 8 && memcmp(seen, "handler\n", 8) == 0);
  CHECK(fstat(fd, &st) == 0 && st.st_size >= at + 8);
  whole_life(other);
  handled++;
  errno = saved;
}

static void allocate(int how) {
  void *volatile memory = how == 3 ? NULL : malloc(10);
  armed = 1;
  switch (how) {
  case 0: memory = malloc(100000); break;
  case 1: free(memory); break;
  case 2: memory = realloc(memory, 1000); break;
  default: memory = calloc(3, 10);
  }
  CHECK(armed == 0);
}

/* In a fork. */
static volatile int forking;
static void in_fork(void) {
  if (forking) allocate(0);
}
static void in_child(void) {
  other = strcmp(path, "atomic") == 0 ? "atomic3" : "plain3"; /* a different one: the parent has its file open at the same time */
  in_fork();
}

static void check_all(int count) {
  char all[8 * 64];
  CHECK(handled == count && pread(fd, all, sizeof all, 0) == 8L * count);
  for (int i = 0; i < count; i++) CHECK(memcmp(all + 8L * i, "handler\n", 8) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  other = strcmp(path, "atomic") == 0 ? "atomic2" : "plain2";
  /* A hang is a failure: the default action of SIGALRM ends the program. */
  alarm(300);
  struct sigaction action = {.sa_handler = on_signal};
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
  CHECK((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  /* The handler makes the first write to the file, which begins a session. */
  allocate(0);
  which = SIGUSR1;
  CHECK(sysv_signal(SIGUSR1, on_signal) == SIG_DFL); /* which is reset when the signal comes */
  allocate(1);
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  for (int how = 2; how < 4; how++) allocate(how);
  check_all(4);
  /* Also when everything exists, and with deferred work begun. */
  CHECK(pwrite(fd, "h", 1, 0) == 1 && fsync(fd) == 0 && fsync(fd) == 0);
  for (int how = 0; how < 2; how++) allocate(how);
  check_all(6);
  /* During a fork, in either process. */
  CHECK(pthread_atfork(in_fork, in_fork, in_child) == 0);
  forking = 1;
  pid_t child = fork();
  forking = 0;
  CHECK(child >= 0);
  if (child == 0) {
    alarm(200);
    check_all(8);
    allocate(1);
    check_all(9);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(handled == 8);
  handled = 9; /* the child's */
  check_all(9);
  allocate(2);
  check_all(10);
  /* `whole_life` closes it for the last time in a handler each time; here, that happens outside. */
  CHECK(close(fd) == 0);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_size == 80);
  return 0;
}
