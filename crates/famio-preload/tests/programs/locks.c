/* Locks of an atomic file, compared with the same calls on a plain one: results, the answers of F_GETLK, and what a
 * program without the library finds that opens both in the middle. Most calls are made while the locks are in
 * memory. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>

enum { ATOMIC, PLAIN, BYTES = 48, ROUNDS = 25, CALLS = 120 };

static const char *paths[2];
static int fds[2][2]; /* each of one description */
static int to_helper, from_helper;
static pid_t helper;
static bool under; /* with the library */

static uint32_t seed = 7;
static uint32_t below(uint32_t end) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % end;
}

static struct flock lock_of(int type, int whence, long start, long len) {
  return (struct flock){.l_type = (short)type, .l_whence = (short)whence, .l_start = start, .l_len = len};
}

static int set(int fd, int command, int type, long start, long len) {
  struct flock lock = lock_of(type, SEEK_SET, start, len);
  return fcntl(fd, command, &lock) == 0 ? 0 : errno;
}

/* The process's record locks that the kernel knows of. */
static int in_kernel(int fd) {
  struct flock lock = lock_of(F_WRLCK, SEEK_SET, 0, 0);
  CHECK(inlined(SYS_fcntl, fd, F_OFD_GETLK, (long)&lock, 0) == 0);
  return lock.l_type != F_UNLCK;
}

/* With nothing locked: waits until locks are kept in memory. */
static void to_memory(void) {
  int fd = fds[ATOMIC][0];
  for (char byte = 0; under; byte++) {
    CHECK(set(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    bool kept = !in_kernel(fd);
    CHECK(pwrite(fd, &byte, 1, 0) == 1 && fsync(fd) == 0);
    CHECK(set(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    if (kept) return;
    sched_yield();
  }
}

/* ---- a program without the library ---- */

static int got(int fd, char *out) {
  int n = 0;
  for (int write = 0; write < 2; write++)
    for (long at = 0; at < BYTES + 2; at++) {
      struct flock lock = lock_of(write ? F_WRLCK : F_RDLCK, SEEK_SET, at, at == BYTES + 1 ? 0 : 1);
      CHECK(fcntl(fd, F_GETLK, &lock) == 0);
      n += sprintf(out + n, "%d:%d,%d,%ld,%ld,%d ", (int)at, lock.l_type, lock.l_whence, (long)lock.l_start,
                   (long)lock.l_len, lock.l_type == F_UNLCK ? 0 : lock.l_pid);
    }
  for (int how = LOCK_SH; how <= LOCK_EX; how++) {
    n += sprintf(out + n, "flock %d ", flock(fd, how | LOCK_NB) == 0 ? 0 : errno);
    CHECK(flock(fd, LOCK_UN) == 0);
  }
  return n;
}

static int help(void) {
  static char seen[2][1 << 16];
  char command;
  while (read(0, &command, 1) == 1) {
    int open_now[2];
    for (int which = 0; which < 2; which++) CHECK((open_now[which] = open(paths[which], O_RDWR | O_CLOEXEC)) >= 0);
    int answer = 0;
    if (command == 'c') { /* compare */
      for (int which = 0; which < 2; which++) got(open_now[which], seen[which]);
      answer = strcmp(seen[0], seen[1]);
      if (answer) fprintf(stderr, "atomic: %s\n plain: %s\n", seen[0], seen[1]);
    } else if (command == 'l') { /* lock byte 5 */
      answer = set(open_now[0], F_SETLK, F_WRLCK, 5, 1);
    } else if (command == 'd') { /* a cycle: byte 1, then byte 0, which the other process has locked */
      CHECK(set(open_now[0], F_SETLK, F_WRLCK, 1, 1) == 0);
      CHECK(write(1, "1", 1) == 1);
      answer = set(open_now[0], F_SETLKW, F_WRLCK, 0, 1);
    }
    for (int which = 0; which < 2; which++) close(open_now[which]);
    CHECK(write(1, &answer, sizeof answer) == sizeof answer);
  }
  return 0;
}

static void start_helper(char *self) {
  int there[2], back[2];
  CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, there[0], 0);
  posix_spawn_file_actions_adddup2(&actions, back[1], 1);
  char *arguments[] = {self, (char *)paths[0], "helper", NULL}, *environment[] = {NULL};
  CHECK(posix_spawn(&helper, self, &actions, NULL, arguments, environment) == 0);
  close(there[0]);
  close(back[1]);
  to_helper = there[1];
  from_helper = back[0];
}

static void tell(char command) { CHECK(write(to_helper, &command, 1) == 1); }
static int answer(void) {
  int answer;
  CHECK(read(from_helper, &answer, sizeof answer) == sizeof answer);
  return answer;
}

/* ---- random calls ---- */

static void random_call(void) {
  static const int types[] = {F_RDLCK, F_WRLCK, F_WRLCK, F_UNLCK, F_UNLCK};
  static const int commands[] = {F_SETLK, F_SETLK, F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK, F_SETLKW};
  uint32_t kind = below(20);
  int which_fd = (int)below(2), results[2], errors[2];
  struct flock locks[2];
  if (kind == 0) {
    int how = (int[]){LOCK_SH, LOCK_EX, LOCK_UN, 0, 64}[below(5)] | LOCK_NB;
    for (int which = 0; which < 2; which++) {
      errno = 0;
      results[which] = flock(fds[which][which_fd], how);
      errors[which] = errno;
    }
    CHECK(results[0] == results[1] && errors[0] == errors[1]);
    return;
  }
  if (kind == 1) { /* drops the process's record locks; not with the first descriptor, which may hold the lease */
    for (int which = 0; which < 2; which++) {
      close(fds[which][1]);
      CHECK((fds[which][1] = dup(fds[which][0])) >= 0);
    }
    return;
  }
  int command = commands[below(7)], type = types[below(5)], whence = SEEK_SET;
  if (command == F_SETLKW) type = F_UNLCK; /* no other process would end the wait */
  bool asks = command == F_GETLK || command == F_OFD_GETLK;
  if (asks && type == F_UNLCK && below(20)) type = F_RDLCK; /* a query that moves the locks to the kernel */
  long start = below(BYTES), len = below(6) == 0 ? 0 : below(12);
  if (below(10) == 0) len = -(long)below(12);
  if (below(12) == 0) whence = below(2) ? SEEK_CUR : SEEK_END;
  if (below(60) == 0) whence = 9;
  if (below(60) == 0) type = 7;
  if (below(60) == 0) start = -1;
  if (below(60) == 0) start = INT64_MAX, len = 2;
  int pid = below(50) == 0 ? 1 : 0;
  for (int which = 0; which < 2; which++) {
    locks[which] = lock_of(type, whence, start, len);
    locks[which].l_pid = pid;
    errno = 0;
    results[which] = fcntl(fds[which][which_fd], command, &locks[which]);
    errors[which] = errno;
  }
  if (results[0] != results[1] || errors[0] != errors[1] || memcmp(&locks[0], &locks[1], sizeof *locks)) {
    fprintf(stderr, "command %d type %d whence %d start %ld len %ld: %d (%d) and %d (%d); %d %ld %ld %d and %d %ld %ld %d\n",
            command, type, whence, start, len, results[0], errors[0], results[1], errors[1], locks[0].l_type,
            (long)locks[0].l_start, (long)locks[0].l_len, locks[0].l_pid, locks[1].l_type, (long)locks[1].l_start,
            (long)locks[1].l_len, locks[1].l_pid);
    CHECK(false);
  }
}

static void unlock_all(void) {
  for (int which = 0; which < 2; which++) {
    CHECK(set(fds[which][0], F_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK(set(fds[which][0], F_OFD_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK(flock(fds[which][0], LOCK_UN) == 0);
  }
}

static void fields(void) {
  int fd = fds[ATOMIC][0];
  CHECK(set(fd, F_SETLK, F_WRLCK, 10, 5) == 0 && set(fd, F_SETLK, F_RDLCK, 15, 0) == 0);
  CHECK(!under || !in_kernel(fd));
  struct flock lock = lock_of(F_WRLCK, SEEK_SET, 0, 0);
  CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_whence == SEEK_SET);
  CHECK(lock.l_start == 10 && lock.l_len == 5 && lock.l_pid == getpid());
  lock = lock_of(F_WRLCK, SEEK_CUR, 20, 1);
  CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK && lock.l_whence == SEEK_SET);
  CHECK(lock.l_start == 15 && lock.l_len == 0);
  lock = lock_of(F_RDLCK, SEEK_CUR, 20, 1);
  CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && lock.l_whence == SEEK_CUR && lock.l_start == 20);
  CHECK(set(fd, F_SETLK, F_UNLCK, 0, 0) == 0 && set(fd, F_OFD_SETLK, F_WRLCK, 3, 1) == 0);
  lock = lock_of(F_RDLCK, SEEK_SET, 0, 0);
  CHECK(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == -1 && lock.l_start == 3);
  CHECK(set(fd, F_SETLK, F_RDLCK, 0, 9) == EAGAIN);
  CHECK(!under || !in_kernel(fd));
  unlock_all();
}

/* ---- threads, while the helper opens and closes the files ---- */

static void *in_thread(void *argument) {
  long base = (long)argument * 12;
  uint32_t own = (uint32_t)base + 1;
  for (int round = 0; round < 3000; round++) {
    own = own * 1664525 + 1013904223;
    long start = base + (own >> 8) % 12, len = 1 + (own >> 16) % 12;
    if (start + len > base + 12) len = base + 12 - start;
    int type = (int[]){F_RDLCK, F_WRLCK, F_UNLCK}[(own >> 24) % 3];
    for (int which = 0; which < 2; which++) CHECK(set(fds[which][0], F_SETLK, type, start, len) == 0);
    if (round % 100 == 0 && base == 0) {
      char byte = (char)round;
      CHECK(pwrite(fds[ATOMIC][0], &byte, 1, 0) == 1 && fsync(fds[ATOMIC][0]) == 0);
    }
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  for (long i = 0; i < 4; i++) CHECK(pthread_create(&all[i], NULL, in_thread, (void *)i) == 0);
  for (int i = 0; i < 5; i++) {
    tell('n');
    CHECK(answer() == 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
  tell('c');
  CHECK(answer() == 0);
  unlock_all();
}

/* ---- waiting ---- */

static void *wait_for_it(void *unused) {
  CHECK(set(fds[ATOMIC][0], F_OFD_SETLKW, F_WRLCK, 4, 1) == 0);
  return unused;
}

static void waiting(void) {
  int fd = fds[ATOMIC][0];
  pthread_t waiter;
  CHECK(set(fd, F_SETLK, F_WRLCK, 4, 1) == 0 && (!under || !in_kernel(fd)));
  CHECK(pthread_create(&waiter, NULL, wait_for_it, NULL) == 0);
  while (!in_kernel(fd)) sched_yield(); /* it waits there */
  CHECK(set(fd, F_SETLK, F_UNLCK, 4, 1) == 0);
  pthread_join(waiter, NULL);
  CHECK(set(fd, F_SETLK, F_WRLCK, 4, 1) == EAGAIN);
  unlock_all();
}

static void circle(void) {
  int fd = fds[ATOMIC][0];
  CHECK(set(fd, F_SETLK, F_WRLCK, 0, 1) == 0 && (!under || !in_kernel(fd)));
  tell('d');
  char byte;
  CHECK(read(from_helper, &byte, 1) == 1);
  int mine = set(fd, F_SETLKW, F_WRLCK, 1, 1); /* one of the two gets an error */
  CHECK(set(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
  int its = answer();
  CHECK((mine == EDEADLK && its == 0) || (mine == 0 && its == EDEADLK));
}

/* ---- another description of the same process ---- */

static void lock_some(void) {
  for (int which = 0; which < 2; which++) {
    CHECK(set(fds[which][0], F_SETLK, F_WRLCK, 10, 5) == 0 && set(fds[which][1], F_OFD_SETLK, F_RDLCK, 30, 5) == 0);
    CHECK(flock(fds[which][0], LOCK_EX) == 0);
  }
  CHECK(!under || !in_kernel(fds[ATOMIC][0]));
}

static void open_again(void) {
  lock_some();
  for (int which = 0; which < 2; which++) {
    int fd = open(paths[which], O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && in_kernel(fd));
    CHECK(set(fd, F_SETLK, F_WRLCK, 11, 1) == 0); /* the process's own */
    CHECK(set(fd, F_OFD_SETLK, F_RDLCK, 12, 1) == EAGAIN && set(fd, F_OFD_SETLK, F_WRLCK, 30, 1) == EAGAIN);
    FAILS(flock(fd, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    struct flock lock = lock_of(F_WRLCK, SEEK_SET, 0, 0);
    CHECK(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_start == 30 && lock.l_len == 5 && lock.l_pid == -1);
    close(fd); /* and with it the record locks */
  }
  CHECK(!in_kernel(fds[ATOMIC][0]));
  tell('c');
  CHECK(answer() == 0);
  unlock_all();
}

/* ---- another program continues with the same descriptors ---- */

static void before_exec(char *self) {
  lock_some();
  char text[8][12];
  int numbers[] = {fds[0][0], fds[0][1], fds[1][0], fds[1][1], to_helper, from_helper, helper};
  char *arguments[] = {self, (char *)paths[0], "after", text[0], text[1], text[2], text[3], text[4], text[5], text[6], NULL};
  for (int i = 0; i < 7; i++) {
    if (i < 6) CHECK(fcntl(numbers[i], F_SETFD, 0) == 0);
    sprintf(text[i], "%d", numbers[i]);
  }
  execv(self, arguments);
  CHECK(false);
}

static void after_exec(char **numbers) {
  for (int i = 0; i < 4; i++) fds[i / 2][i % 2] = atoi(numbers[i]);
  to_helper = atoi(numbers[4]), from_helper = atoi(numbers[5]), helper = atoi(numbers[6]);
  CHECK(in_kernel(fds[PLAIN][0]) && in_kernel(fds[ATOMIC][0]));
  tell('c');
  CHECK(answer() == 0);
  unlock_all();
  tell('c');
  CHECK(answer() == 0);
}

/* ---- children ---- */

/* A child that the library is not told of. */
static void cloning(void) {
  lock_some();
  pid_t child = (pid_t)inlined(SYS_clone, SIGCHLD, 0, 0, 0);
  CHECK(child >= 0);
  if (child == 0) {
    for (int which = 0; which < 2; which++) {
      CHECK(set(fds[which][0], F_SETLK, F_WRLCK, 12, 1) == EAGAIN);
      CHECK(set(fds[which][0], F_SETLK, F_WRLCK, 20, 1) == 0);
    }
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  tell('c');
  CHECK(answer() == 0);
  unlock_all();
}

static void forking(void) {
  lock_some();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (int which = 0; which < 2; which++) {
      int fd = fds[which][0];
      CHECK(set(fd, F_SETLK, F_WRLCK, 12, 1) == EAGAIN); /* the parent's, as a process */
      CHECK(set(fd, F_OFD_SETLK, F_WRLCK, 30, 5) == 0);  /* the description's own lock */
      CHECK(set(fd, F_SETLK, F_RDLCK, 40, 1) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
      struct flock lock = lock_of(F_WRLCK, SEEK_SET, 0, 20);
      CHECK(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == getppid() && lock.l_start == 10);
      close(fds[which][1]); /* drops its own record lock, not the parent's */
      CHECK(set(fd, F_SETLK, F_WRLCK, 12, 1) == EAGAIN);
    }
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  tell('c');
  CHECK(answer() == 0);
  CHECK(!under || in_kernel(fds[ATOMIC][0]));
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  paths[ATOMIC] = argv[1];
  paths[PLAIN] = "model";
  under = strncmp(argv[1], "atomic", 6) == 0;
  if (argc == 10) {
    after_exec(argv + 3);
    return 0;
  }
  if (argc == 3 && strcmp(argv[2], "helper") == 0) return help();
  start_helper(argv[0]);
  for (int which = 0; which < 2; which++) {
    CHECK((fds[which][0] = open(paths[which], O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
    CHECK((fds[which][1] = dup(fds[which][0])) >= 0);
    char text[20] = {0};
    CHECK(write(fds[which][0], text, 20) == 20 && fsync(fds[which][0]) == 0);
  }
  to_memory();
  fields();
  for (int round = 0; round < ROUNDS; round++) {
    to_memory();
    for (int call = 0; call < CALLS; call++) random_call();
    tell('c');
    CHECK(answer() == 0);
    if (round % 2) for (int call = 0; call < CALLS; call++) random_call(); /* these are in the kernel */
    tell('c');
    CHECK(answer() == 0);
    unlock_all();
  }
  to_memory();
  CHECK(set(fds[ATOMIC][1], F_SETLK, F_RDLCK, 0, 10) == 0 && (!under || !in_kernel(fds[ATOMIC][0])));
  tell('l');
  CHECK(answer() == EAGAIN);
  unlock_all();
  to_memory();
  waiting();
  to_memory();
  circle();
  to_memory();
  threads();
  to_memory();
  open_again();
  to_memory();
  if (argc == 3 && strcmp(argv[2], "exec") == 0) before_exec(argv[0]);
  argc == 3 ? cloning() : forking();
  close(to_helper);
  int status;
  CHECK(waitpid(helper, &status, 0) == helper && status == 0);
  return 0;
}
