/* Several opens of one file in one process, which has the write lease all the same: the program sees what it would
 * see with a plain file. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LARGE 0100000 /* glibc defines it as 0 */
enum { SIZE = 8192 };

static const char *path, *program;
static char bytes[SIZE];

static int lease_of(int fd) { return (int)inlined(SYS_fcntl, fd, F_GETLEASE, 0, 0); }

/* Whether both lead to one description in the kernel. */
static bool one(int a, int b) { return syscall(SYS_kcmp, getpid(), getpid(), 0, a, b) == 0; }

static void sync_some(int fd) {
  static unsigned char number;
  number++;
  CHECK(pwrite(fd, &number, 1, SIZE - 1) == 1 && fsync(fd) == 0);
}

static int lock(int fd, int command, int type, long start, long len) {
  struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
  return fcntl(fd, command, &lock) == 0 ? 0 : errno;
}

/* A file with these bytes, and the lease. */
static int leased(void) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && pwrite(fd, bytes, SIZE, 0) == SIZE && fsync(fd) == 0);
  do { /* first it only grows, under a lease that ends with that; on a disk the lease is taken because of the locks */
    sync_some(fd);
    for (int i = 0; i < 70; i++) CHECK(lock(fd, F_SETLK, F_RDLCK, 0, 1) == 0 && lock(fd, F_SETLK, F_UNLCK, 0, 1) == 0);
    sched_yield();
  } while (lease_of(fd) != F_WRLCK);
  return fd;
}

static int twin_of(int fd, int flags) {
  int twin = open(path, O_RDWR | flags, 0600);
  CHECK(twin >= 0 && twin != fd && one(fd, twin) && lease_of(fd) == F_WRLCK);
  return twin;
}

/* Past the library: the descriptions are then separated. */
static void break_it(void) {
  int outsider = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
  CHECK(outsider >= 0 && inlined(SYS_close, outsider, 0, 0, 0) == 0);
}

/* By another process, whose close drops no locks of this one's. */
static void break_by_another(void) {
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    int outsider = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
    inlined(SYS_exit_group, outsider >= 0 ? 0 : 1, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* An outsider's open returns a moment before; past the library, that moment can be seen. */
static void apart(int a, int b) {
  while (one(a, b) || lease_of(a) < 0 || lease_of(b) < 0) sched_yield();
  CHECK(!one(a, b) && lease_of(a) == F_UNLCK && lease_of(b) == F_UNLCK);
}

/* The numbers of one description get another of the kernel one after the other. */
static void together(int a, int b) {
  while (!one(a, b) || lease_of(a) < 0 || lease_of(b) < 0) sched_yield();
}

static long at(int fd) { return lseek(fd, 0, SEEK_CUR); }


/* The process's record locks that the kernel knows of. */
static bool in_kernel(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(inlined(SYS_fcntl, fd, F_OFD_GETLK, (long)&lock, 0) == 0);
  return lock.l_type != F_UNLCK;
}

/* Whether another process finds the byte locked. */
static bool locked_for_others(long start) {
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    int fd = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    long found = inlined(SYS_fcntl, fd, F_GETLK, (long)&lock, 0);
    inlined(SYS_exit_group, found != 0 ? 2 : lock.l_type != F_UNLCK, 0, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
  return WEXITSTATUS(status) == 1;
}

static void positions_and_flags(void) {
  int fd = leased(), twin = twin_of(fd, O_CREAT | O_CLOEXEC | O_NOFOLLOW), appends = twin_of(fd, O_APPEND);
  CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(appends, F_GETFD) == 0);
  CHECK(fcntl(fd, F_GETFL) == (O_RDWR | LARGE) && fcntl(twin, F_GETFL) == (O_RDWR | O_NOFOLLOW | LARGE));
  CHECK(fcntl(appends, F_GETFL) == (O_RDWR | O_APPEND | LARGE));
  CHECK(lseek(fd, 100, SEEK_SET) == 100 && at(twin) == 0 && at(appends) == 0);
  CHECK(write(twin, "twin", 4) == 4 && at(twin) == 4 && at(fd) == 100);
  CHECK(write(appends, "end", 3) == 3 && at(appends) == SIZE + 3 && at(fd) == 100);
  char seen[8];
  CHECK(pread(fd, seen, 4, 0) == 4 && memcmp(seen, "twin", 4) == 0);
  CHECK(pread(twin, seen, 8, SIZE) == 3 && memcmp(seen, "end", 3) == 0);
  CHECK(fcntl(twin, F_SETFL, O_APPEND) == 0 && fcntl(fd, F_GETFL) == (O_RDWR | LARGE));
  CHECK(write(twin, "!", 1) == 1 && at(twin) == SIZE + 4 && fcntl(twin, F_SETFL, 0) == 0);
  /* A duplicate of a twin shares only with that twin. */
  int again = twin_of(fd, 0), copy = dup(again);
  CHECK(lseek(copy, 7, SEEK_SET) == 7 && at(again) == 7 && at(fd) == 100);
  break_it();
  apart(fd, again);
  apart(fd, twin);
  together(again, copy);
  CHECK(one(again, copy) && at(copy) == 7 && at(again) == 7 && at(fd) == 100 && at(twin) == SIZE + 4);
  CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(twin, F_GETFD) == FD_CLOEXEC);
  CHECK(fcntl(appends, F_GETFL) == (O_RDWR | O_APPEND | LARGE));
  CHECK(fcntl(twin, F_GETFL) == (O_RDWR | O_NOFOLLOW | LARGE));
  CHECK(close(copy) == 0 && close(again) == 0 && close(twin) == 0 && close(appends) == 0 && close(fd) == 0);
  /* State that only the kernel keeps. */
  fd = leased(), twin = twin_of(fd, 0);
  CHECK(fcntl(twin, F_SETFL, O_NONBLOCK) == 0);
  CHECK(fcntl(fd, F_GETFL) == (O_RDWR | LARGE) && fcntl(twin, F_GETFL) == (O_RDWR | O_NONBLOCK | LARGE));
  CHECK(close(twin) == 0 && close(fd) == 0);
}

static void other_opens(void) {
  int fd = leased(), twin = twin_of(fd, 0);
  FAILS(open(path, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
  CHECK(one(fd, twin) && lease_of(fd) == F_WRLCK);
  int cut = twin_of(fd, O_TRUNC);
  struct stat stat;
  CHECK(fstat(fd, &stat) == 0 && stat.st_size == 0 && pwrite(cut, bytes, SIZE, 0) == SIZE);
  int writes = open(path, O_WRONLY | O_DSYNC);
  char byte;
  CHECK(writes >= 0 && one(fd, writes) && fcntl(writes, F_GETFL) == (O_WRONLY | O_DSYNC | LARGE));
  FAILS(pread(writes, &byte, 1, 0), EBADF);
  CHECK(write(writes, "synced", 6) == 6);
  FAILS(open(path, O_RDWR | O_DIRECTORY), ENOTDIR);
  int reads = open(path, O_RDONLY);
  apart(fd, reads);
  apart(fd, twin);
  FAILS(pread(writes, &byte, 1, 0), EBADF);
  FAILS(write(reads, &byte, 1), EBADF);
  CHECK(close(reads) == 0 && close(writes) == 0 && close(cut) == 0 && close(twin) == 0);
  CHECK(symlink(path, "link") == 0);
  FAILS(open("link", O_RDWR | O_NOFOLLOW), ELOOP);
  CHECK(unlink("link") == 0 && close(fd) == 0);
  /* With two names, the kernel opens it. */
  fd = leased();
  CHECK(link(path, "atomic other") == 0);
  int other = open("atomic other", O_RDWR);
  CHECK(other >= 0 && !one(fd, other) && close(other) == 0 && unlink("atomic other") == 0 && close(fd) == 0);
}

static void closes(void) {
  int fd = leased(), twin = twin_of(fd, 0);
  CHECK(write(fd, "first", 5) == 5 && close(fd) == 0 && lease_of(twin) == F_WRLCK);
  fd = open(path, O_RDWR);
  CHECK(one(fd, twin) && lease_of(twin) == F_WRLCK && at(fd) == 0 && at(twin) == 0);
  CHECK(close(twin) == 0 && lease_of(fd) == F_WRLCK);
  twin = twin_of(fd, 0);
  int third = twin_of(fd, 0);
  CHECK(close(fd) == 0 && lseek(twin, 5, SEEK_SET) == 5);
  break_it();
  apart(twin, third);
  CHECK(at(twin) == 5 && at(third) == 0 && close(third) == 0 && close(twin) == 0);
  CHECK(has(path, "") == false);
}

static void record_locks(void) {
  int fd = leased(), twin = twin_of(fd, 0);
  CHECK(lock(twin, F_SETLK, F_WRLCK, 10, 5) == 0 && lock(fd, F_SETLK, F_RDLCK, 20, 5) == 0 && !in_kernel(fd));
  CHECK(lock(fd, F_SETLK, F_WRLCK, 10, 5) == 0);
  /* They stay when the descriptions are separated. */
  break_by_another();
  apart(fd, twin);
  CHECK(in_kernel(fd) && in_kernel(twin) && locked_for_others(10) && locked_for_others(20) && !locked_for_others(30));
  CHECK(fcntl(twin, F_GETFL) == (O_RDWR | LARGE) && write(twin, "written", 7) == 7 && at(twin) == 7 && at(fd) == 0);
  CHECK(lock(twin, F_SETLK, F_UNLCK, 20, 5) == 0 && !locked_for_others(20));
  /* And any close drops them. */
  CHECK(close(twin) == 0 && !locked_for_others(10) && close(fd) == 0);

  fd = leased(), twin = twin_of(fd, 0);
  CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0 && close(twin) == 0 && lease_of(fd) == F_WRLCK);
  CHECK(!locked_for_others(0) && close(fd) == 0);
}

static void locks_of_descriptions(void) {
  for (int how = 0; how < 2; how++) {
    int fd = leased(), twin = twin_of(fd, 0);
    if (how) {
      CHECK(flock(fd, LOCK_EX) == 0);
      FAILS(flock(twin, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    } else {
      CHECK(lock(twin, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
      CHECK(lock(fd, F_OFD_SETLK, F_RDLCK, 5, 1) == EAGAIN && lock(fd, F_SETLK, F_RDLCK, 5, 1) == EAGAIN);
    }
    apart(fd, twin);
    CHECK(close(how ? fd : twin) == 0);
    int left = how ? twin : fd;
    CHECK(how ? flock(left, LOCK_EX | LOCK_NB) == 0 : lock(left, F_OFD_SETLK, F_WRLCK, 5, 1) == 0);
    CHECK(close(left) == 0);
  }
}

/* Two that were opened before anything was written. */
static void joined_later(void) {
  CHECK(close(leased()) == 0);
  int fd = open(path, O_RDWR | O_NOFOLLOW), twin = open(path, O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0 && twin >= 0 && !one(fd, twin) && lseek(twin, 9, SEEK_SET) == 9 && lseek(fd, 3, SEEK_SET) == 3);
  for (int round = 0; lease_of(fd) != F_WRLCK; round++) {
    /* With a lock held at each SYNC, as a database does. */
    CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0);
    sync_some(twin);
    CHECK(lock(twin, F_SETLK, F_UNLCK, 0, 1) == 0);
    sched_yield();
  }
  CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_NOFOLLOW | LARGE) && fcntl(twin, F_GETFL) == (O_RDWR | LARGE));
  CHECK(one(fd, twin) && at(twin) == 9 && at(fd) == 3 && fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
  break_it();
  apart(fd, twin);
  CHECK(at(twin) == 9 && at(fd) == 3 && fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
  /* And again. */
  while (lease_of(fd) != F_WRLCK) {
    sync_some(fd);
    CHECK(lock(fd, F_SETLK, F_RDLCK, 0, 1) == 0 && lock(fd, F_SETLK, F_UNLCK, 0, 1) == 0);
    sched_yield();
  }
  CHECK(one(fd, twin) && close(fd) == 0 && close(twin) == 0);
}

/* Descriptions with locks of their own are not joined. */
static void flocks_are_kept(void) {
  CHECK(close(leased()) == 0);
  int fd = open(path, O_RDWR), twin = open(path, O_RDWR);
  CHECK(fd >= 0 && twin >= 0 && flock(fd, LOCK_SH) == 0 && flock(twin, LOCK_SH) == 0 && flock(fd, LOCK_UN) == 0);
  for (int round = 0; round < 300; round++) {
    CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
    sync_some(fd);
    CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 1) == 0 && !one(fd, twin));
  }
  FAILS(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK);
  CHECK(close(twin) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && close(fd) == 0);
}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void forks(bool locks) {
  int fd = leased(), twin = twin_of(fd, 0);
  CHECK(lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20);
  if (locks) CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(at(fd) == 10 && at(twin) == 20 && lseek(fd, 11, SEEK_SET) == 11 && lseek(twin, 22, SEEK_SET) == 22);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 1) == (locks ? EAGAIN : 0));
    CHECK(write(twin, "child", 5) == 5);
    _exit(0);
  }
  wait_for(child);
  CHECK(at(fd) == 11 && at(twin) == 27 && !one(fd, twin));
  CHECK(locked_for_others(0) == locks);
  CHECK(close(twin) == 0 && close(fd) == 0);
}

static void execs(void) {
  int fd = leased(), twin = twin_of(fd, 0);
  CHECK(lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20 && write(twin, "x", 1) == 1);
  for (int managed = 0; managed < 2; managed++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      fd = open(path, O_RDWR), twin = open(path, O_RDWR);
      CHECK(fd >= 0 && twin >= 0 && lseek(fd, 30, SEEK_SET) == 30 && lseek(twin, 40, SEEK_SET) == 40);
      CHECK(pwrite(fd, "y", 1, 0) == 1);
      char numbers[2][16];
      snprintf(numbers[0], sizeof numbers[0], "%d", fd);
      snprintf(numbers[1], sizeof numbers[1], "%d", twin);
      if (!managed) unsetenv("LD_PRELOAD");
      execl(program, program, path, "after", numbers[0], numbers[1], (char *)NULL);
      _exit(1);
    }
    wait_for(child);
  }
  CHECK(close(twin) == 0 && close(fd) == 0);
  /* By the process that has the lease. */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    fd = leased(), twin = twin_of(fd, 0);
    CHECK(lseek(fd, 30, SEEK_SET) == 30 && lseek(twin, 40, SEEK_SET) == 40);
    char numbers[2][16];
    snprintf(numbers[0], sizeof numbers[0], "%d", fd);
    snprintf(numbers[1], sizeof numbers[1], "%d", twin);
    execl(program, program, path, "after", numbers[0], numbers[1], (char *)NULL);
    _exit(1);
  }
  wait_for(child);
}

static int after_exec(char **argv) {
  int fd = atoi(argv[3]), twin = atoi(argv[4]);
  CHECK(at(fd) == 30 && at(twin) == 40 && lseek(fd, 1, SEEK_SET) == 1 && at(twin) == 40);
  return 0;
}

static void sent(void) {
  int fd = leased(), twin = twin_of(fd, 0), pair[2];
  CHECK(lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 1;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(head), &twin, sizeof twin);
  CHECK(sendmsg(pair[0], &message, 0) == 1);
  memset(control, 0, sizeof control);
  message.msg_controllen = sizeof control;
  CHECK(recvmsg(pair[1], &message, 0) == 1);
  int got;
  memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
  CHECK(at(got) == 20 && lseek(got, 25, SEEK_SET) == 25 && at(twin) == 25 && at(fd) == 10);
  CHECK(close(got) == 0 && close(twin) == 0 && close(fd) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void demoted(void) {
  int fd = leased(), twin = twin_of(fd, O_APPEND);
  CHECK(lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20);
  int input = dup(0);
  CHECK(input >= 0 && dup2(fd, 0) == 0);
  CHECK(!one(fd, twin) && at(twin) == 20 && at(fd) == 10 && at(0) == 10);
  CHECK(kernel_position(twin) == 20 && kernel_position(fd) == 10);
  CHECK(inlined(SYS_fcntl, twin, F_GETFL, 0, 0) & O_APPEND && !(inlined(SYS_fcntl, fd, F_GETFL, 0, 0) & O_APPEND));
  CHECK(dup2(input, 0) == 0 && close(input) == 0 && close(twin) == 0 && close(fd) == 0);
}

/* Prevents the library from opening any descriptor of the file again, in any thread. */
static void forbid_opens(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_RDWR | O_NONBLOCK | LARGE | O_CLOEXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

/* They stay joined, and nothing is done that the kernel would do to both. */
static void cannot_part(void) {
  for (int locks = 0; locks < 2; locks++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) {
      wait_for(child);
      continue;
    }
    int fd = leased(), twin = twin_of(fd, O_CLOEXEC), number = dup(0);
    CHECK(lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20);
    if (locks) CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0);
    forbid_opens();
    break_by_another();
    while (!one(fd, twin)) sched_yield();
    CHECK(write(fd, "one", 3) == 3 && write(twin, "two", 3) == 3 && at(fd) == 13 && at(twin) == 23);
    CHECK(one(fd, twin) && lease_of(fd) == F_UNLCK && locked_for_others(0) == locks);
    FAILS(flock(twin, LOCK_EX), ENOLCK);
    CHECK(lock(fd, F_OFD_SETLK, F_WRLCK, 100, 1) == ENOLCK && lock(fd, F_SETLK, F_WRLCK, 100, 1) == 0);
    FAILS(dup2(fd, 0), EBUSY);
    CHECK(dup2(number, 0) == 0 && fsync(twin) == 0 && pread(twin, bytes, 3, 10) == 3 && memcmp(bytes, "one", 3) == 0);
    if (locks) CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0); /* the close of 0 has ended it */
    CHECK(write(twin, "more", 4) == 4 && at(twin) == 27 && at(fd) == 13);
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
      CHECK(at(fd) == 13 && at(twin) == 27);
      _exit(0);
    }
    wait_for(grandchild);
    CHECK(at(fd) == 13 && at(twin) == 27 && locked_for_others(0) == locks);
    CHECK(close(twin) == 0 && !locked_for_others(0) && close(fd) == 0 && has(path, "") == false);
    _exit(0);
  }
}

static void set_limit(rlim_t soft, rlim_t hard) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = soft;
  if (hard) limit.rlim_max = hard;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* The limit is lowered below a number that shares its description with others. */
static void below_a_number(int hard) {
  int fd = leased(), twin = twin_of(fd, O_CLOEXEC), high = dup2(twin, 200);
  CHECK(high == 200 && lseek(fd, 10, SEEK_SET) == 10 && lseek(twin, 20, SEEK_SET) == 20);
  if (hard) {
    CHECK(close(twin) == 0);
    set_limit(150, 150);
    CHECK(!one(fd, high));
    for (int i = 0; i < 300; i++) { /* nor can it be joined again */
      sync_some(fd);
      CHECK(lock(fd, F_SETLK, F_RDLCK, 0, 1) == 0 && lock(fd, F_SETLK, F_UNLCK, 0, 1) == 0);
    }
    int another = open(path, O_RDWR);
    CHECK(another >= 0 && !one(fd, another) && flock(high, LOCK_EX) == 0);
    FAILS(flock(another, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(close(another) == 0);
  } else {
    set_limit(twin, 0);
    CHECK(close(0) == 0);
    int standard = open(path, O_RDWR); /* which is demoted */
    CHECK(standard == 0 && !one(fd, high) && !one(fd, 0) && fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(high, F_GETFD) == 0);
    CHECK(one(twin, high) && kernel_position(twin) == 20 && kernel_position(fd) == 10 && kernel_position(0) == 0);
    CHECK(close(0) == 0 && close(twin) == 0);
  }
  CHECK(at(fd) == 10 && at(high) == 20 && close(fd) == 0 && close(high) == 0 && has(path, "") == false);
}

/* The program has used all the numbers that it can ever have. */
static void without_a_number(bool locks) {
  int fd = leased(), twin = twin_of(fd, O_CLOEXEC), third = twin_of(fd, 0), copy = dup(twin);
  CHECK(lseek(twin, 20, SEEK_SET) == 20 && lseek(third, 30, SEEK_SET) == 30);
  set_limit(40, 40);
  while (open("/", O_RDONLY | O_CLOEXEC) >= 0) continue;
  CHECK(errno == EMFILE);
  if (locks) {
    CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
      inlined(SYS_close, 39, 0, 0, 0);
      inlined(SYS_exit_group, inlined(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0) < 0, 0, 0, 0);
    }
    wait_for(child);
  } else {
    CHECK(flock(twin, LOCK_EX) == 0);
  }
  apart(fd, twin);
  apart(fd, third);
  together(twin, copy);
  CHECK(!one(fd, third) && !one(twin, third) && one(twin, copy) && at(fd) == 0 && at(copy) == 20 && at(third) == 30);
  CHECK(fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(third, F_GETFD) == 0 && fcntl(copy, F_GETFD) == 0);
  CHECK(fcntl(twin, F_GETFL) == (O_RDWR | LARGE) && fcntl(third, F_GETFL) == (O_RDWR | LARGE));
  if (locks)
    CHECK(in_kernel(fd) && in_kernel(twin));
  else
    FAILS(flock(third, LOCK_SH | LOCK_NB), EWOULDBLOCK);
  CHECK(write(third, "three", 5) == 5 && fsync(fd) == 0 && pread(twin, bytes, 5, 30) == 5 && memcmp(bytes, "three", 5) == 0);
  CHECK(close(third) == 0 && close(copy) == 0 && close(twin) == 0 && close(fd) == 0 && has(path, "") == false);
}

static void numbers(void) {
  for (int round = 0; round < 12; round++) {
    int how = round % 4;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      if (how < 2)
        below_a_number(how);
      else
        without_a_number(how > 2);
      _exit(0);
    }
    wait_for(child);
  }
}

/* An owner whose mode denies the owner access. */
static void rights(void) {
  if (geteuid() != 0) return;
  int go[2], done[2];
  char byte = 1;
  CHECK(mkdir("folder", 0777) == 0 && chown("folder", 65534, 65534) == 0 && chdir("folder") == 0);
  CHECK(pipe(go) == 0 && pipe(done) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    int fd = leased(), twin = twin_of(fd, 0);
    CHECK(lseek(twin, 20, SEEK_SET) == 20 && fchmod(twin, 0) == 0 && one(fd, twin));
    CHECK(lock(twin, F_SETLK, F_WRLCK, 0, 1) == 0);
    CHECK(write(go[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1);
    apart(fd, twin);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && (stat.st_mode & 0777) == 0);
    FAILS(open(path, O_RDWR), EACCES);
    CHECK(at(twin) == 20 && at(fd) == 0 && in_kernel(fd) && write(twin, "x", 1) == 1);
    CHECK(close(twin) == 0 && close(fd) == 0 && unlink(path) == 0);
    _exit(0);
  }
  CHECK(read(go[0], &byte, 1) == 1);
  break_it();
  CHECK(write(done[1], &byte, 1) == 1);
  wait_for(child);
  CHECK(chdir("..") == 0 && rmdir("folder") == 0);
}

/* A file that only grows continues to do so. */
static void grows(void) {
  unlink(path);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, bytes, 100) == 100);
  bool is_growing = lease_of(fd) == F_WRLCK;
  int twin = open(path, O_RDWR | O_APPEND);
  CHECK(twin >= 0 && one(fd, twin) == is_growing && (lease_of(fd) == F_WRLCK) == is_growing);
  CHECK(write(twin, bytes, 50) == 50 && write(fd, bytes, 50) == 50 && at(twin) == 150 && at(fd) == 150);
  char seen[200];
  CHECK(pread(twin, seen, 200, 0) == 150 && fsync(twin) == 0 && (lease_of(fd) == F_WRLCK) == is_growing);
  CHECK(write(twin, bytes, 50) == 50 && lock(twin, F_SETLK, F_WRLCK, 0, 0) == 0);
  struct stat stat;
  CHECK(fstat(fd, &stat) == 0 && stat.st_size == 200);
  break_by_another();
  apart(fd, twin);
  CHECK(locked_for_others(7) && write(twin, "more", 4) == 4 && at(twin) == 204 && at(fd) == 150);
  CHECK(pread(fd, seen, 4, 200) == 4 && memcmp(seen, "more", 4) == 0);
  CHECK(close(twin) == 0 && close(fd) == 0);
}

enum { THREADS = 4, ROUNDS = 300 };

static void *opens_and_closes(void *argument) {
  long number = (long)argument;
  unsigned seed = (unsigned)number;
  int kept = -1;
  for (int round = 0; round < ROUNDS; round++) {
    int fd = open(path, O_RDWR | (rand_r(&seed) % 4 ? 0 : O_APPEND) | (rand_r(&seed) % 8 ? O_CLOEXEC : 0));
    CHECK(fd >= 0);
    long word = number << 32 | round, seen = 0, place = number * 1024 + 8 * (rand_r(&seed) % 64);
    if (fcntl(fd, F_GETFL) & O_APPEND) CHECK(fcntl(fd, F_SETFL, 0) == 0);
    CHECK(lseek(fd, place, SEEK_SET) == place && write(fd, &word, 8) == 8 && at(fd) == place + 8);
    CHECK(pread(fd, &seen, 8, place) == 8 && seen == word);
    if (rand_r(&seed) % 4 == 0) CHECK(fsync(fd) == 0);
    if (rand_r(&seed) % 8 == 0) CHECK(lock(fd, F_SETLKW, F_RDLCK, place, 8) == 0);
    if (rand_r(&seed) % 32 == 0) CHECK(flock(fd, LOCK_SH) == 0);
    if (rand_r(&seed) % 4 == 0) {
      int copy = dup(fd);
      CHECK(copy >= 0 && at(copy) == place + 8 && close(fd) == 0 && at(copy) == place + 8);
      fd = copy;
    }
    if (kept >= 0) {
      CHECK(pread(kept, &seen, 8, place) == 8 && seen == word && at(kept) % 1024 <= 512 && close(kept) == 0);
      kept = -1;
    }
    if (rand_r(&seed) % 2)
      kept = fd;
    else
      CHECK(close(fd) == 0);
  }
  if (kept >= 0) CHECK(close(kept) == 0);
  return NULL;
}

static void threads(void) {
  int fd = leased();
  pid_t outsider = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (outsider == 0) {
    for (int round = 0; round < 100; round++) {
      int opened = (int)inlined(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
      if (opened < 0) inlined(SYS_exit_group, 1, 0, 0, 0);
      inlined(SYS_close, opened, 0, 0, 0);
      for (int yield = 0; yield < 500; yield++) inlined(SYS_sched_yield, 0, 0, 0, 0);
    }
    inlined(SYS_exit_group, 0, 0, 0, 0);
  }
  pthread_t all[THREADS];
  for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, opens_and_closes, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(all[i], NULL) == 0);
  wait_for(outsider);
  struct stat stat;
  CHECK(fstat(fd, &stat) == 0 && stat.st_size == SIZE && close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  path = argv[1], program = argv[0];
  if (argc >= 5) return after_exec(argv);
  for (int i = 0; i < SIZE; i++) bytes[i] = (char)('a' + i % 26);
  struct {
    const char *name;
    void (*run)(void);
  } parts[] = {
      {"positions", positions_and_flags}, {"opens", other_opens}, {"closes", closes}, {"records", record_locks},
      {"descriptions", locks_of_descriptions}, {"joined", joined_later}, {"flocks", flocks_are_kept}, {"execs", execs}, {"sent", sent},
      {"grows", grows}, {"threads", threads}, {"stuck", cannot_part}, {"rights", rights}, {"numbers", numbers}, {"handed", demoted},
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (argc < 3 || strcmp(argv[2], parts[i].name) == 0) parts[i].run();
  if (argc < 3 || strcmp(argv[2], "forks") == 0) {
    if (argc < 3) path = "atomic last"; /* the other file is demoted by now */
    forks(false);
    forks(true);
  }
  return 0;
}
