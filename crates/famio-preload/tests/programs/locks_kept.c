/* Record locks of several processes of one atomic file, which keep read locks while lock calls are frequent. Ways:
 * "compare" makes the same calls on a plain file; "exclude" looks whether two ever have one lock, also when processes
 * are killed ("kill"), and with a program without the library among them ("outsider"); "wait" waits for locks; "exec"
 * and "fork" look that no kept lock passes on. */
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { WORKERS = 3, BYTES = 24 };

static struct flock lock_of(int type, long start, long len) {
  return (struct flock){.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

static int call(int fd, int command, int type, long start, long len) {
  struct flock lock = lock_of(type, start, len);
  return fcntl(fd, command, &lock) == 0 ? 0 : errno;
}

/* How many record locks the kernel has on the file: of that process, or (-1) of a description, as kept locks are. */
static int in_kernel(int fd, pid_t of) {
  struct stat stat;
  CHECK(fstat(fd, &stat) == 0);
  FILE *file = fopen("/proc/locks", "r");
  CHECK(file);
  char line[200];
  int found = 0;
  while (fgets(line, sizeof line, file)) {
    int pid;
    unsigned long inode;
    bool is_it = sscanf(line, "%*s %*s %*s %*s %d %*x:%*x:%lu", &pid, &inode) == 2;
    found += is_it && inode == stat.st_ino && pid == of;
  }
  fclose(file);
  return found;
}

static int opened(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  CHECK(fd >= 0);
  return fd;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A child that does not outlive this process. */
static pid_t child(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  return pid;
}

/* Becomes one of the processes of the file, by reads. */
static void join(int fd) {
  char byte;
  for (int i = 0; i < 40; i++) CHECK(pread(fd, &byte, 1, 0) >= 0);
}

/* ---- compare ---- */

struct order {
  char what; /* l: lock, g: get, o: lock of a description, d: close and open, e: end */
  int type;
  long start, len;
  bool looks;
};
struct answer {
  int results[2];
  bool kept;
};

static void work(int orders, int answers) {
  int fds[2] = {opened("model"), opened("atomic")};
  join(fds[1]);
  struct order order;
  while (read(orders, &order, sizeof order) == sizeof order) {
    struct answer answer = {0};
    if (order.what == 'e') _exit(0);
    for (int which = 0; which < 2; which++) {
      int fd = fds[which], *result = &answer.results[which];
      switch (order.what) {
        case 'l': *result = call(fd, F_SETLK, order.type, order.start, order.len); break;
        case 'o':
          *result = call(fd, F_OFD_SETLK, order.type, order.start, order.len);
          call(fd, F_OFD_SETLK, F_UNLCK, 0, 0);
          break;
        case 'd':
          close(dup(fd));
          break;
        case 'g': {
          struct flock lock = lock_of(order.type, order.start, order.len);
          CHECK(fcntl(fd, F_GETLK, &lock) == 0);
          *result = lock.l_type != F_UNLCK;
          CHECK(lock.l_type == F_UNLCK || lock.l_pid > 1);
          break;
        }
      }
    }
    if (order.looks) answer.kept = in_kernel(fds[1], -1) > 0;
    if (answer.results[0] != answer.results[1] && order.what == 'l')
      for (int which = 0; which < 2; which++) { /* who has it */
        struct flock lock = lock_of(order.type, order.start, order.len);
        CHECK(fcntl(fds[which], F_GETLK, &lock) == 0);
        fprintf(stderr, "%s: type %d, %ld+%ld, of %d (this is %d); now %d\n", which ? "atomic" : "plain", lock.l_type,
                (long)lock.l_start, (long)lock.l_len, lock.l_pid, getpid(),
                call(fds[which], F_SETLK, order.type, order.start, order.len));
      }
    CHECK(write(answers, &answer, sizeof answer) == sizeof answer);
  }
  _exit(0);
}

static uint32_t seed;
static uint32_t below(uint32_t end) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % end;
}

static struct {
  pid_t pid;
  int orders, answers;
} workers[WORKERS];

static void start(int worker) {
  int orders[2], answers[2];
  CHECK(pipe(orders) == 0 && pipe(answers) == 0);
  pid_t pid = child();
  if (pid == 0) {
    for (int other = 0; other < WORKERS; other++)
      if (workers[other].pid) close(workers[other].orders), close(workers[other].answers);
    close(orders[1]), close(answers[0]);
    work(orders[0], answers[1]);
  }
  close(orders[0]), close(answers[1]);
  workers[worker].pid = pid, workers[worker].orders = orders[1], workers[worker].answers = answers[0];
}

static void end(int worker, bool by_signal) {
  if (by_signal)
    kill(workers[worker].pid, SIGKILL);
  else
    CHECK(write(workers[worker].orders, &(struct order){.what = 'e'}, sizeof(struct order)) > 0);
  CHECK(waitpid(workers[worker].pid, NULL, 0) == workers[worker].pid);
  close(workers[worker].orders), close(workers[worker].answers);
  workers[worker].pid = 0;
}

static void compare(int calls) {
  int kept = 0, looks = 0, agreed = 0;
  for (int worker = 0; worker < WORKERS; worker++) start(worker);
  for (int i = 0; i < calls; i++) {
    int worker = (int)below(WORKERS);
    if (below(2000) == 0) {
      end(worker, below(2));
      start(worker);
    }
    /* Few locks at a time, and none from time to time; and often for long no lock for writing. */
    uint32_t kind = below(30000), writes = i / 3000 % 3 == 0 ? 2 : below(40) == 0;
    if (writes < 2 && kind > 20000) kind -= 10000 * (below(50) > 0);
    struct order order = {.what = kind < 20000 ? 'l' : kind < 29500 ? 'g' : kind < 29999 ? 'd' : 'o'};
    uint32_t type = below(10);
    order.type = order.what == 'l' && type < 5 ? F_UNLCK : type < 10 - writes ? F_RDLCK : F_WRLCK;
    order.looks = i % 50 == 0;
    bool all = below(order.type == F_UNLCK ? 2 : 6) == 0;
    order.start = all ? 0 : 4 * below(BYTES / 4), order.len = all ? 0 : 3 + below(3);
    CHECK(write(workers[worker].orders, &order, sizeof order) == sizeof order);
    struct answer answer;
    CHECK(read(workers[worker].answers, &answer, sizeof answer) == sizeof answer);
    if (answer.results[0] != answer.results[1]) {
      fprintf(stderr, "call %d of worker %d (%c %d %ld+%ld): plain %d, atomic %d\n", i, worker, order.what, order.type,
              order.start, order.len, answer.results[0], answer.results[1]);
      abort();
    }
    agreed++, looks += order.looks, kept += answer.kept;
  }
  for (int worker = 0; worker < WORKERS; worker++) end(worker, false);
  printf("%d calls agree, locks were kept in %d of %d looks\n", agreed, kept, looks);
  CHECK(kept > looks / 100);
}

/* ---- exclude ---- */

struct board {
  int writers, readers, errors, turns[8], kept[8];
};

/* Locks a byte of the file in turn with others, and looks whether another has it. */
static void contend(struct board *board, int me, double until, bool outsider) {
  int fd = opened("atomic");
  if (!outsider) join(fd);
  unsigned at = (unsigned)me * 7919;
  while (now() < until) {
    bool writes = at++ % (outsider ? 1 : me == 0 ? 50 : 900) == 0;
    if (call(fd, F_SETLK, writes ? F_WRLCK : F_RDLCK, 5, 3)) {
      if (outsider) poll(NULL, 0, 20);
      continue;
    }
    int writing = __atomic_load_n(&board->writers, __ATOMIC_SEQ_CST);
    if (writing && writing != getpid()) { /* it was killed with its lock, and is no more; or it lives, and goes on */
      double patience = now() + 1;
      while (now() < patience && __atomic_load_n(&board->writers, __ATOMIC_SEQ_CST) == writing && !kill(writing, 0)) {}
      if (!kill(writing, 0)) board->errors++;
    }
    if (writes) {
      __atomic_store_n(&board->writers, getpid(), __ATOMIC_SEQ_CST);
      for (volatile int spin = 0; spin < 200; spin++)
        if (__atomic_load_n(&board->writers, __ATOMIC_SEQ_CST) != getpid()) board->errors++;
      __atomic_store_n(&board->writers, 0, __ATOMIC_SEQ_CST);
    }
    board->turns[me]++;
    CHECK(call(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    if (at % 2048 == 0 && !outsider) board->kept[me] += in_kernel(fd, -1) > 0;
  }
  _exit(0);
}

static struct board *map_board(void) {
  int fd = opened("board");
  CHECK(ftruncate(fd, sizeof(struct board)) == 0);
  struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(board != MAP_FAILED);
  close(fd);
  return board;
}

static void exclude(double seconds, bool kills) {
  struct board *board = map_board();
  double until = now() + seconds;
  pid_t pids[WORKERS];
  for (int me = 0; me < WORKERS; me++)
    if ((pids[me] = child()) == 0) contend(board, me, until, false);
  while (now() < until) {
    poll(NULL, 0, 50);
    if (!kills) continue;
    int me = (int)below(WORKERS);
    kill(pids[me], SIGKILL);
    CHECK(waitpid(pids[me], NULL, 0) == pids[me]);
    int dead = pids[me];
    __atomic_compare_exchange_n(&board->writers, &dead, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if ((pids[me] = child()) == 0) contend(board, me, until, false);
  }
  for (int me = 0; me < WORKERS; me++) CHECK(waitpid(pids[me], NULL, 0) == pids[me]);
  int kept = 0, fewest = board->turns[0];
  for (int me = 0; me < WORKERS; me++) {
    kept += board->kept[me];
    if (board->turns[me] < fewest) fewest = board->turns[me];
  }
  printf("%d %d %d turns, %d looks at kept locks, outsider %d, %d errors\n", board->turns[0], board->turns[1],
         board->turns[2], kept, board->turns[WORKERS], board->errors);
  CHECK(board->errors == 0 && fewest > 100);
  CHECK(kept > 20);
}

/* ---- wait ---- */

/* Locks and unlocks until a lock is kept. Returns whether one is. */
static bool busy(int fd) {
  double until = now() + 0.5;
  do
    for (int i = 0; i < 100; i++) {
      call(fd, F_SETLK, F_RDLCK, 1, 24);
      CHECK(call(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    }
  while (now() < until && in_kernel(fd, -1) == 0);
  return in_kernel(fd, -1) > 0;
}

static volatile sig_atomic_t signals;
static void count(int number) {
  (void)number;
  signals++;
}

/* Another process with the file open, which keeps a lock on bytes from 1 to 24 nearly all the time, or none. */
static pid_t companion(bool keeps) {
  pid_t pid = child();
  if (pid == 0) {
    int fd = opened("atomic");
    join(fd);
    busy(fd);
    while (!keeps) pause();
    for (;;) busy(fd);
  }
  return pid;
}

/* Has a lock on a byte until the other end of standard input is closed. */
static pid_t holder(int byte, int other_end) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  pid_t pid = child();
  if (pid == 0) {
    close(other_end);
    int fd = opened("atomic");
    join(fd);
    busy(fd);
    CHECK(call(fd, F_SETLKW, F_WRLCK, byte, 1) == 0);
    CHECK(write(pipes[1], "x", 1) == 1);
    char what;
    CHECK(read(0, &what, 1) == 0);
    _exit(0);
  }
  char byte_read;
  CHECK(read(pipes[0], &byte_read, 1) == 1);
  close(pipes[0]), close(pipes[1]);
  return pid;
}

static void waits(void) {
  int fd = opened("atomic");
  join(fd);
  pid_t other = companion(true);
  int kept = 0;
  alarm(50);
  for (int round = 0; round < 20; round++) {
    int to_child[2];
    CHECK(pipe(to_child) == 0);
    int input = dup(0);
    CHECK(dup2(to_child[0], 0) == 0);
    kept += busy(fd);
    pid_t pid = holder(20, to_child[1]);
    CHECK(dup2(input, 0) == 0);
    close(input), close(to_child[0]);
    CHECK(call(fd, F_SETLK, F_WRLCK, 20, 1) == EAGAIN);
    struct flock lock = lock_of(F_WRLCK, 20, 1);
    CHECK(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == pid && lock.l_start == 20);
    if (round == 3) { /* a signal ends the wait */
      struct sigaction action = {.sa_handler = count};
      CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
      pid_t self = getpid(), sender = child();
      if (sender == 0)
        for (;;) poll(NULL, 0, 50), kill(self, SIGUSR1);
      CHECK(call(fd, F_SETLKW, F_WRLCK, 20, 1) == EINTR && signals > 0);
      kill(sender, SIGKILL), waitpid(sender, NULL, 0);
    }
    if (round == 4) { /* a circle */
      CHECK(call(fd, F_SETLK, F_WRLCK, 30, 1) == 0);
      pid_t second = child();
      if (second == 0) {
        int own = opened("atomic");
        join(own);
        busy(own);
        while (call(own, F_SETLK, F_WRLCK, 31, 1)) {} /* the other looks whether it is locked */
        _exit(call(own, F_SETLKW, F_WRLCK, 30, 1) == 0 ? 0 : 3);
      }
      while (call(fd, F_SETLK, F_RDLCK, 31, 1) == 0) call(fd, F_SETLK, F_UNLCK, 31, 1);
      int found = 0;
      while ((found = call(fd, F_SETLKW, F_WRLCK, 31, 1)) == EINTR) {}
      CHECK(found == EDEADLK || found == 0);
      CHECK(call(fd, F_SETLK, F_UNLCK, 30, 2) == 0);
      int status;
      CHECK(waitpid(second, &status, 0) == second);
      CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || (found == 0 && WEXITSTATUS(status) == 3)));
    }
    pid_t ender = child();
    if (ender == 0) {
      poll(NULL, 0, 30 + round);
      if (round % 2) kill(pid, SIGKILL);
      close(to_child[1]);
      _exit(0);
    }
    close(to_child[1]);
    CHECK(call(fd, F_SETLKW, F_WRLCK, 20, 1) == 0);
    CHECK(call(fd, F_SETLK, F_UNLCK, 20, 1) == 0);
    waitpid(ender, NULL, 0), waitpid(pid, NULL, 0);
  }
  kill(other, SIGKILL), waitpid(other, NULL, 0);
  printf("%d of 20 waits with kept locks\n", kept);
  CHECK(kept > 3);
}

/* ---- exec, fork ---- */

/* Whether a program without the library can lock what this process has locked for reading. */
static bool excludes(void) {
  pid_t pid = child();
  if (pid == 0) {
    int fd = (int)inlined(SYS_openat, AT_FDCWD, (long)"atomic", O_RDWR, 0);
    struct flock lock = lock_of(F_WRLCK, 1, 24);
    long result = inlined(SYS_fcntl, fd, F_SETLK, (long)&lock, 0);
    inlined(SYS_exit_group, fd < 0 || result == 0, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return status == 0;
}

/* What is locked after a close is locked, however the close was made, and though the library does not see it. */
static void closes(int fd, int inherited) {
  for (int way = 0; way < 7; way++) {
    int tries = 0, other = way == 0 ? inherited : dup(fd);
    while (!busy(fd)) CHECK(++tries < 20);
    if (way > 1 && way < 5) {
      close(other);
      CHECK((other = (int)inlined(SYS_openat, AT_FDCWD, (long)"atomic", O_RDONLY, 0)) >= 0);
    }
    if (way < 3) close(other);
    if (way == 3) CHECK(close_range((unsigned)other, (unsigned)other, 0) == 0);
    if (way == 4) CHECK(dup2(2, other) == other && close(other) == 0);
    if (way == 5) fclose(fdopen(other, "r"));
    if (way == 6) CHECK(inlined(SYS_close, other, 0, 0, 0) == 0);
    CHECK(call(fd, F_SETLK, F_RDLCK, 1, 24) == 0 && excludes());
    CHECK(call(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
  }
}

/* What a process keeps is not the new program's, and not a child's: nobody would give it up. (The new program does not
 * have the process's locks either, since the library's descriptor is closed.) */
static void passes_on(bool execs, char **argv) {
  int fd = opened("atomic");
  CHECK(fcntl(fd, F_SETFD, 0) == 0);
  join(fd);
  pid_t other = companion(false);
  int tries = 0;
  while (!busy(fd)) CHECK(++tries < 20);
  CHECK(call(fd, F_SETLK, F_RDLCK, 100, 7) == 0); /* this one is the program's */
  if (execs) {
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    execl(argv[0], argv[0], "after-exec", number, NULL);
    CHECK(false);
  }
  pid_t pid = child();
  if (pid == 0) {
    int own = opened("atomic");
    CHECK(in_kernel(own, getpid()) == 0);
    CHECK(call(own, F_SETLK, F_RDLCK, 50, 1) == 0 && in_kernel(own, getpid()) == 1);
    close(own);
    CHECK(in_kernel(fd, getpid()) == 0);
    own = opened("atomic");
    join(own);
    while (in_kernel(own, -1) > 0) poll(NULL, 0, 1); /* of the parent, which does not lock any more */
    closes(own, fd);
    _exit(0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  for (tries = 0; !busy(fd);) CHECK(++tries < 20); /* as before */
  CHECK(call(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
  kill(other, SIGKILL), waitpid(other, NULL, 0);
}

static void after_exec(int fd) {
  alarm(20);
  while (in_kernel(fd, -1) > 0) poll(NULL, 0, 1); /* of the companion, for a moment */
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  setvbuf(stdout, NULL, _IONBF, 0);
  const char *way = argv[1];
  seed = (uint32_t)atoi(argv[2]);
  if (!strcmp(way, "compare")) compare(100000);
  if (!strcmp(way, "exclude")) exclude(4, false);
  if (!strcmp(way, "kill")) exclude(6, true);
  if (!strcmp(way, "outsider")) contend(map_board(), WORKERS, now() + 5, true);
  if (!strcmp(way, "wait")) waits();
  if (!strcmp(way, "exec") || !strcmp(way, "fork")) passes_on(!strcmp(way, "exec"), argv);
  if (!strcmp(way, "after-exec")) after_exec(atoi(argv[2]));
  return 0;
}
