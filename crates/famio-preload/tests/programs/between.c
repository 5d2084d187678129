/* Handlers run between calls on a file, as between system calls: their own calls succeed, they may leave by
 * siglongjmp, and _exit in one ends the process as elsewhere. The program sees the signal actions that it has set. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { BLOCK = 4096, THREADS = 3, RECORD = 1000 };

static const char *path;
static int fd;

static timer_t tick(int signal, long nanoseconds) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal, .sigev_value.sival_int = 4711};
  event._sigev_un._tid = (pid_t)inlined(SYS_gettid, 0, 0, 0, 0);
  struct itimerspec often = {{0, nanoseconds}, {0, nanoseconds}};
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
  return timer;
}

/* ---- what the program has set ---- */

static volatile sig_atomic_t seen_value, seen_code, seen_blocked, count;
static void plain_handler(int signal) { count += signal == SIGUSR1; }
static void other_handler(int signal) { count += 100 * (signal == SIGUSR2); }
static void info_handler(int signal, siginfo_t *info, void *context) {
  sigset_t now;
  CHECK(signal == SIGUSR1 && context && sigprocmask(SIG_BLOCK, NULL, &now) == 0);
  seen_value = info->si_value.sival_int;
  seen_code = info->si_code;
  seen_blocked = sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGTERM);
}

static void as_set(void) {
  struct sigaction action = {.sa_handler = plain_handler, .sa_flags = SA_RESTART}, old;
  CHECK(sigaction(SIGUSR1, &action, &old) == 0 && old.sa_handler == SIG_DFL);
  CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == plain_handler);
  CHECK((old.sa_flags & (SA_RESTART | SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK)) == SA_RESTART);
  raise(SIGUSR1);
  CHECK(count == 1);
  CHECK(signal(SIGUSR2, other_handler) == SIG_DFL && signal(SIGUSR2, SIG_IGN) == other_handler);
  CHECK(signal(SIGUSR2, other_handler) == SIG_IGN);
  raise(SIGUSR2);
  CHECK(count == 101);
  struct sigaction with_info = {.sa_sigaction = info_handler, .sa_flags = SA_SIGINFO};
  sigaddset(&with_info.sa_mask, SIGUSR2);
  CHECK(sigaction(SIGUSR1, &with_info, &old) == 0 && old.sa_handler == plain_handler && !(old.sa_flags & SA_SIGINFO));
  CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 99}) == 0);
  CHECK(seen_value == 99 && seen_code == SI_QUEUE && seen_blocked);
  CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_sigaction == info_handler && old.sa_flags & SA_SIGINFO);
  struct sigaction once = {.sa_handler = plain_handler, .sa_flags = SA_RESETHAND};
  CHECK(sigaction(SIGUSR1, &once, NULL) == 0);
  raise(SIGUSR1);
  CHECK(count == 102 && sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
  FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
  FAILS(sigaction(100, &action, NULL), EINVAL);
  /* A child's actions are its own, even while it shares the parent's memory. */
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  pid_t child = vfork();
  if (child == 0) {
    struct sigaction theirs = {.sa_handler = other_handler};
    sigaction(SIGUSR1, &theirs, NULL);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child && sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == plain_handler);
  raise(SIGUSR1);
  CHECK(count == 103);
}

/* ---- threads, each with its own timer ---- */

static __thread int mine, own_fd;
static __thread volatile long ticks, total;

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)context;
  int saved = errno;
  struct stat st;
  char line[64];
  CHECK(signal == SIGRTMIN && info->si_code == SI_TIMER && info->si_value.sival_int == 4711);
  memset(line, 'A' + ticks % 26, sizeof line);
  /* At the end of this thread's block, and to its own file. */
  CHECK(pwrite(fd, line, sizeof line, (mine + 1) * BLOCK - 64) == 64);
  CHECK(write(own_fd, line, 1) == 1);
  if (ticks % 8 == 0) CHECK(fsync(fd) == 0 && fdatasync(own_fd) == 0);
  char back[64];
  CHECK(pread(fd, back, sizeof back, (mine + 1) * BLOCK - 64) == 64 && memcmp(back, line, 64) == 0);
  CHECK(fstat(fd, &st) == 0 && lseek(own_fd, 0, SEEK_CUR) == total + ticks + 1);
  if (ticks % 16 == 0) {
    int again = open(path, O_RDWR);
    CHECK(again >= 0 && close(again) == 0);
  }
  ticks++;
  errno = saved;
}

static void *writes(void *number) {
  char name[32], block[BLOCK], back[BLOCK];
  mine = (int)(long)number;
  snprintf(name, sizeof name, "%s-%d", path, mine);
  CHECK((own_fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
  timer_t timer = tick(SIGRTMIN, 300000);
  for (int round = 0; ticks < 400; round++) {
    memset(block, 'a' + round % 26, sizeof block);
    CHECK(pwrite(fd, block, BLOCK - 64, mine * BLOCK) == BLOCK - 64);
    CHECK(pread(fd, back, BLOCK - 64, mine * BLOCK) == BLOCK - 64 && memcmp(block, back, BLOCK - 64) == 0);
    if (round % 4 == 0) CHECK(fsync(fd) == 0);
    sigset_t all, before; /* only one thread moves the position at a time */
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    CHECK(write(own_fd, "main", 4) == 4);
    total += 4;
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  }
  CHECK(timer_delete(timer) == 0);
  sigset_t all;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
  CHECK(pread(fd, back, BLOCK, mine * BLOCK) == BLOCK && memcmp(block, back, BLOCK - 64) == 0);
  for (int i = 0; i < 64; i++) CHECK(back[BLOCK - 64 + i] == 'A' + (ticks - 1) % 26);
  CHECK(lseek(own_fd, 0, SEEK_END) == total + ticks && close(own_fd) == 0 && unlink(name) == 0);
  return NULL;
}

static void with_threads(void) {
  struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_RESTART | SA_SIGINFO};
  CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, writes, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- a handler that does not return ---- */

static sigjmp_buf out;
static volatile sig_atomic_t left;
static void leave(int signal) {
  (void)signal;
  left++;
  siglongjmp(out, 1);
}

static void by_jump(void) {
  char block[BLOCK], back[BLOCK];
  struct sigaction action = {.sa_handler = leave};
  CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
  timer_t timer = tick(SIGUSR2, 500000);
  volatile int round = 0;
  sigsetjmp(out, 1);
  while (left < 300) {
    memset(block, 'a' + round++ % 26, sizeof block);
    CHECK(pwrite(fd, block, BLOCK, 0) == BLOCK);
    if (round % 3 == 0) CHECK(fsync(fd) == 0);
  }
  CHECK(timer_delete(timer) == 0 && signal(SIGUSR2, SIG_IGN) == leave);
  CHECK(pread(fd, back, BLOCK, 0) == BLOCK);
  for (int i = 1; i < BLOCK; i++) CHECK(back[i] == back[0]);
  CHECK(pwrite(fd, "x", 1, 0) == 1 && fsync(fd) == 0);
}

static int descriptors(void) {
  DIR *all = opendir("/proc/self/fd");
  CHECK(all);
  int count = 0;
  while (readdir(all)) count++;
  closedir(all);
  return count;
}

/* The calls that handlers have left count as ended: what they used is given back. */
static void nothing_piles_up(void) {
  char name[32];
  snprintf(name, sizeof name, "%s-again", path);
  int before = 0;
  for (int round = 0; round < 400; round++) {
    int again = open(name, O_RDWR | O_CREAT, 0600);
    CHECK(again >= 0 && pwrite(again, name, sizeof name, 5000 * (round % 7)) == sizeof name && fsync(again) == 0);
    CHECK(close(again) == 0);
    if (round == 20) before = descriptors();
  }
  CHECK(descriptors() < before + 20);
  CHECK(unlink(name) == 0);
}

/* ---- a handler that ends the process ---- */

static void end(int signal) {
  (void)signal;
  _exit(7);
}

static void by_exit(void) {
  volatile int *written = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(written != MAP_FAILED);
  for (int round = 0; round < 12; round++) {
    char name[32], record[RECORD];
    snprintf(name, sizeof name, "%s-end", path);
    *written = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(200);
      struct sigaction action = {.sa_handler = end};
      int own = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
      CHECK(own >= 0 && sigaction(SIGTERM, &action, NULL) == 0);
      for (;; ++*written) {
        memset(record, 'a' + *written % 26, sizeof record);
        CHECK(write(own, record, sizeof record) == RECORD);
      }
    }
    while (*written < 1 + round * 37);
    CHECK(kill(child, SIGTERM) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    int own = open(name, O_RDONLY);
    struct stat st;
    CHECK(own >= 0 && fstat(own, &st) == 0);
    CHECK(st.st_size % RECORD == 0 && st.st_size >= *written * RECORD && st.st_size <= (*written + 1) * RECORD);
    for (long i = 0; i * RECORD < st.st_size; i++) {
      CHECK(pread(own, record, RECORD, i * RECORD) == RECORD);
      for (int at = 0; at < RECORD; at++) CHECK(record[at] == 'a' + i % 26);
    }
    CHECK(close(own) == 0 && unlink(name) == 0);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  /* A hang is a failure: the default action of SIGALRM ends the program. */
  alarm(300);
  as_set();
  CHECK((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && ftruncate(fd, THREADS * BLOCK) == 0);
  with_threads();
  by_jump();
  nothing_piles_up();
  by_exit();
  CHECK(close(fd) == 0);
  return 0;
}
