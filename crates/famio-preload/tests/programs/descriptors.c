/* The library has descriptors of its own, which a program does not know: the program closes all numbers, puts its
 * own files there, and asks which ones are open. Arguments: the atomic file, and what is done in between. Each case
 * writes and syncs before and after. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* As CHECK, in a process whose stderr is not read. */
#define CHECK_OR(code, condition) ((condition) ? (void)0 : _exit(code))
#define OTHERS 40
static const char text[] = "a file of the program's, which nobody else writes to";
static int atomic = -1, others[OTHERS], count;

static int other(int flags) {
  char name[32];
  snprintf(name, sizeof name, "other-%d", count);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
  CHECK(fd >= 0 && write(fd, text, sizeof text) == sizeof text);
  return others[count++] = fd;
}

static void others_are_theirs(void) {
  for (int i = 0; i < count; i++) {
    char name[32], found[sizeof text + 1];
    snprintf(name, sizeof name, "other-%d", i);
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && read(fd, found, sizeof found) == sizeof text && memcmp(found, text, sizeof text) == 0);
    inlined(SYS_close, fd, 0, 0, 0);
  }
}

/* Many epochs, so that the journal grows. */
static void go_on(char letter) {
  static char block[64 << 10];
  memset(block, letter, sizeof block);
  for (int i = 0; i < 64; i++) {
    CHECK(pwrite(atomic, block, sizeof block, (off_t)i * sizeof block) == sizeof block);
    if (i % 8 == 7) CHECK(fsync(atomic) == 0);
  }
}

/* The descriptors of this process, according to the kernel. */
static int numbers(int *all, int most) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  CHECK(dir != NULL);
  for (struct dirent *entry; (entry = readdir(dir));) {
    int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(dir) && n < most) all[n++] = fd;
  }
  closedir(dir);
  return n;
}

static volatile bool moving = true;

/* Puts a file at numbers that were free a moment ago, as shells do, and checks that it stays there. */
static void *move(void *argument) {
  struct stat own, found;
  int from = *(int *)argument, lowest;
  CHECK(fstat(from, &own) == 0);
  while (moving) {
    CHECK((lowest = dup(from)) >= 0 && close(lowest) == 0);
    for (int number = lowest; number < lowest + 3; number++) CHECK(dup2(from, number) == number);
    sched_yield();
    for (int number = lowest; number < lowest + 3; number++)
      CHECK(fstat(number, &found) == 0 && found.st_ino == own.st_ino && close(number) == 0);
  }
  return NULL;
}

/* Opens and writes the file again and again, for which the library opens several files. */
static void *begin_anew(void *argument) {
  const char *path = argument;
  while (moving) {
    CHECK(pwrite(atomic, "x", 1, 0) == 1);
    CHECK(rename(path, "atomic-moved") == 0 && rename("atomic-moved", path) == 0);
  }
  return NULL;
}

static bool is_ours(int fd) {
  if (fd == atomic || fd <= 2) return true;
  for (int i = 0; i < count; i++)
    if (others[i] == fd) return true;
  return false;
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *path = argv[1], *how = argv[2];
  int all[1024], n;
  struct rlimit usual = {1024, 2048};
  CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
  closefrom(3); /* inherited descriptors */
  if (strcmp(how, "detached") == 0) {
    /* As a daemon that opens its file before it detaches from its terminal: the first write comes afterwards. */
    CHECK((atomic = open(path, O_RDWR | O_CREAT, 0600)) >= 0);
    close(0), close(1), close(2);
    go_on('a');
    for (int i = 0; i < 5000; i++) dprintf(2, "a message that nobody reads %d\n", i);
    go_on('c');
    raise(SIGKILL);
  }
  if (strcmp(how, "standard") == 0) {
    /* A daemon without standard descriptors, whose messages go to whatever is there. */
    close(0), close(1), close(2);
    CHECK_OR(50, (atomic = open(path, O_RDWR | O_CREAT, 0600)) == 0);
    int third = open("messages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK_OR(51, third == 1);
    go_on('a');
    for (int i = 0; i < 5000; i++) dprintf(2, "a message that nobody reads %d\n", i);
    go_on('b');
    CHECK_OR(52, open("later", O_RDWR | O_CREAT | O_TRUNC, 0600) == 2);
    go_on('c');
    others_are_theirs();
    raise(SIGKILL);
  }
  CHECK((atomic = open(path, O_RDWR | O_CREAT, 0600)) >= 0);
  go_on('a');
  other(0);
  bool by_hook = true;
  if (strcmp(how, "close") == 0) {
    for (int fd = 0; fd < 4096; fd++)
      if (!is_ours(fd)) FAILS(close(fd), EBADF);
  } else if (strcmp(how, "close_range") == 0) {
    CHECK(close_range((unsigned)others[0] + 1, ~0u, 0) == 0);
    CHECK(close_range((unsigned)others[0] + 1, ~0u, 2 /* CLOSE_RANGE_UNSHARE */) == 0);
    CHECK(close_range((unsigned)others[0] + 1, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */) == 0);
    FAILS(close_range(5, 4, 0), EINVAL);
    FAILS(close_range(100, 2000, 1 << 20), EINVAL);
  } else if (strcmp(how, "closefrom") == 0) {
    closefrom(others[0] + 1);
  } else if (strcmp(how, "syscall") == 0) {
    for (int fd = 0; fd < 4096; fd++)
      if (!is_ours(fd)) CHECK(syscall(SYS_close, fd) == -1 && errno == EBADF);
  } else if (strcmp(how, "inlined") == 0) {
    by_hook = false;
    for (int fd = 0; fd < 4096; fd++)
      if (!is_ours(fd)) inlined(SYS_close, fd, 0, 0, 0);
  } else if (strcmp(how, "replaced") == 0) {
    /* From now on the program uses every existing number itself. */
    by_hook = false;
    n = numbers(all, 1024);
    for (int i = 0; i < n; i++)
      if (!is_ours(all[i]) && count < OTHERS) {
        int fd = other(0);
        long made;
        /* Another thread is just opening something there. */
        while ((made = inlined(SYS_dup3, fd, all[i], O_CLOEXEC, 0)) == -EBUSY) sched_yield();
        CHECK(made == all[i]);
      }
  } else if (strcmp(how, "dup2") == 0) {
    for (int round = 0; round < 4; round++) {
      n = numbers(all, 1024);
      for (int i = 0; i < n; i++)
        if (!is_ours(all[i]) && count < OTHERS) {
          int fd = other(0);
          CHECK(round % 2 ? dup2(fd, all[i]) == all[i] : dup3(fd, all[i], O_CLOEXEC) == all[i]);
          close(fd);
          others[count - 1] = all[i];
        }
      go_on((char)('e' + round));
    }
    FAILS(dup2(4000, all[0]), EBADF);
  } else if (strcmp(how, "dup2-all") == 0) {
    int fd = other(0);
    for (int number = 3; number < 1024; number++)
      if (!is_ours(number)) CHECK(dup2(fd, number) == number);
    close(500); /* to examine the files */
  } else if (strcmp(how, "dupfd") == 0) {
    for (int number = 200; number < 1024; number++) {
      int fd = fcntl(others[0], number % 2 ? F_DUPFD : F_DUPFD_CLOEXEC, number);
      CHECK(fd == number);
      close(fd);
    }
  } else if (strcmp(how, "look") == 0) {
    n = numbers(all, 1024);
    struct stat stat;
    for (int i = 0; i < n; i++)
      if (!is_ours(all[i])) {
        FAILS(fcntl(all[i], F_GETFD), EBADF);
        FAILS(fcntl(all[i], F_GETFL), EBADF);
        FAILS(dup(all[i]), EBADF);
        FAILS(dup2(all[i], 100), EBADF);
        FAILS(fcntl(all[i], F_DUPFD, 3), EBADF);
        FAILS(fstat(all[i], &stat), EBADF);
        FAILS(close(all[i]), EBADF);
      }
  } else if (strcmp(how, "passing") == 0) {
    /* Not where the program moves things. */
    int low[2] = {atomic, others[0]};
    CHECK((atomic = fcntl(low[0], F_DUPFD, 100)) >= 100 && (others[0] = fcntl(low[1], F_DUPFD, 100)) >= 100);
    CHECK(close(low[0]) == 0 && close(low[1]) == 0);
    pthread_t mover;
    CHECK(pthread_create(&mover, NULL, move, &others[0]) == 0);
    for (int round = 0; round < 8; round++) go_on((char)('e' + round));
    moving = false;
    CHECK(pthread_join(mover, NULL) == 0);
  } else if (strcmp(how, "numbers") == 0) {
    /* What the program opens or duplicates gets its lowest free number. */
    pthread_t other_thread;
    int lowest = dup(atomic);
    CHECK(close(lowest) == 0);
    CHECK(pthread_create(&other_thread, NULL, begin_anew, (void *)path) == 0);
    for (int i = 0; i < 5000; i++) {
      CHECK(open("other-0", O_RDONLY) == lowest && dup(others[0]) == lowest + 1);
      CHECK(open(".", O_RDONLY | O_DIRECTORY) == lowest + 2 && fcntl(atomic, F_DUPFD, 0) == lowest + 3);
      for (int fd = lowest; fd < lowest + 4; fd++) CHECK(close(fd) == 0);
    }
    moving = false;
    CHECK(pthread_join(other_thread, NULL) == 0);
  } else if (strcmp(how, "limit") == 0) {
    struct rlimit limit = {4, 2048};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    go_on('b');
    CHECK(close(others[0]) == 0 && close(atomic) == 0);
    return 0;
  } else if (strcmp(how, "fork") == 0) {
    pid_t child = fork();
    if (child == 0) {
      n = numbers(all, 1024);
      for (int fd = 0; fd < 4096; fd++)
        if (!is_ours(fd)) FAILS(close(fd), EBADF);
      CHECK(pwrite(atomic, "child", 5, 0) == 5 && fsync(atomic) == 0);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  } else if (strcmp(how, "count") == 0) {
    n = numbers(all, 1024);
    int ours = 0;
    for (int i = 0; i < n; i++) ours += !is_ours(all[i]);
    printf("%d\n", ours);
    return 0;
  }
  if (strcmp(how, "dup2-all") != 0)
    while (count < OTHERS) other(0);
  go_on('z');
  others_are_theirs();
  if (by_hook && strcmp(how, "dup2-all") != 0) {
    /* The same after the file is closed. */
    CHECK(close(atomic) == 0);
    others_are_theirs();
    CHECK((atomic = open(path, O_RDWR)) >= 0);
    go_on('z');
  }
  raise(SIGKILL);
}
