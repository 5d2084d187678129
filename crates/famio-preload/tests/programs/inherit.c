/* Descriptors that come from a parent, through exec, or through a socket: what a program may rely on with a plain
 * file. */
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
extern pid_t _Fork(void);

enum { RECORD = 16, EACH = 400, WORKERS = 4 };

static const char *name;
static char self[4096];

static void ended(pid_t child, int wanted) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WEXITSTATUS(status) != wanted) fprintf(stderr, "the child ended with %d\n", WEXITSTATUS(status));
  CHECK(WEXITSTATUS(status) == wanted);
}

static int at(int fd, off_t wanted) { return lseek(fd, 0, SEEK_CUR) == wanted; }

/* There is one position, wherever it moves. */
static int in_child(int fd, int twin) {
  char buffer[8];
  if (!at(fd, 6) || !at(twin, 6)) return 1;
  if (write(fd, "child", 5) != 5 || !at(twin, 11)) return 2;
  if (lseek(twin, 2, SEEK_SET) != 2 || read(fd, buffer, 4) != 4 || memcmp(buffer, "rent", 4)) return 3;
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_size != 11) return 4;
  if (lseek(fd, 11, SEEK_SET) != 11 || fsync(fd) != 0) return 5;
  if (close(twin) != 0 || write(fd, "!", 1) != 1 || close(fd) != 0) return 6;
  return 7;
}

static void forked(pid_t (*fork_)(void)) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), twin = dup(fd);
  CHECK(fd >= 0 && twin >= 0 && write(fd, "parent", 6) == 6);
  pid_t child = fork_();
  if (child == 0) _exit(in_child(fd, twin));
  ended(child, 7);
  CHECK(at(fd, 12) && at(twin, 12) && write(fd, " goes on", 8) == 8);
  CHECK(has(name, "parentchild! goes on"));
  CHECK(close(fd) == 0 && close(twin) == 0);
}

/* No process's record overwrites another one's, without O_APPEND. */
static int work(int fd, char who) {
  char record[RECORD + 1];
  for (int i = 0; i < EACH; i++) {
    snprintf(record, sizeof record, "%c%014d\n", who, i);
    if (write(fd, record, RECORD) != RECORD) return 1;
    if (i % 100 == 50 && fsync(fd) != 0) return 2;
  }
  return 0;
}

static void workers(void) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  pid_t all[WORKERS];
  CHECK(fd >= 0);
  for (int i = 0; i < WORKERS; i++) {
    all[i] = fork();
    if (all[i] == 0) _exit(work(fd, (char)('a' + i)));
  }
  CHECK(work(fd, 'p') == 0);
  for (int i = 0; i < WORKERS; i++) ended(all[i], 0);
  int next[256] = {0}, total = (WORKERS + 1) * EACH;
  CHECK(at(fd, (off_t)total * RECORD) && lseek(fd, 0, SEEK_SET) == 0);
  char record[RECORD + 1] = {0};
  for (int i = 0; i < total; i++) {
    char who;
    int number;
    CHECK(read(fd, record, RECORD) == RECORD && sscanf(record, "%c%d", &who, &number) == 2);
    CHECK(number == next[(unsigned char)who]++);
  }
  CHECK(read(fd, record, 1) == 0 && close(fd) == 0);
}

/* Flags belong to the description, too. */
static int flags_in_child(int fd) {
  if (!(fcntl(fd, F_GETFL) & O_APPEND) || lseek(fd, 0, SEEK_SET) != 0 || write(fd, "end", 3) != 3 || !at(fd, 8)) return 1;
  if (fcntl(fd, F_SETFL, 0) != 0) return 2;
  return 7;
}

static void flags(void) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
  CHECK(fd >= 0 && write(fd, "begin", 5) == 5);
  pid_t child = fork();
  if (child == 0) _exit(flags_in_child(fd));
  ended(child, 7);
  CHECK(!(fcntl(fd, F_GETFL) & O_APPEND) && lseek(fd, 0, SEEK_SET) == 0 && write(fd, "B", 1) == 1);
  CHECK(has(name, "Beginend") && close(fd) == 0);
}

/* What another program finds: called from main with "there" and the descriptor's number. */
static int there(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || !(flags & O_APPEND) || (flags & O_SYNC) != O_SYNC || (flags & O_ACCMODE) != O_RDWR) return 1;
  char buffer[8];
  if (!at(fd, 2) || read(fd, buffer, 3) != 3 || memcmp(buffer, "for", 3)) return 2;
  if (write(fd, "+", 1) != 1) return 3;
  struct stat st;
  if (fstat(fd, &st) != 0 || !at(fd, st.st_size)) return 4;
  if (lseek(fd, 2, SEEK_SET) != 2) return 5;
  return 7;
}

static void programs(void) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_SYNC, 0600);
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  char *arguments[] = {self, (char *)name, "there", number, NULL};
  CHECK(fd >= 0 && write(fd, "before", 6) == 6 && lseek(fd, 2, SEEK_SET) == 2);

  pid_t child = fork();
  if (child == 0) {
    execv(self, arguments);
    _exit(1);
  }
  ended(child, 7);
  CHECK(at(fd, 2) && has(name, "before+"));

  child = vfork();
  if (child == 0) {
    execv(self, arguments);
    _exit(1);
  }
  ended(child, 7);
  CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
  ended(child, 7);
  CHECK(has(name, "before+++"));

  /* By another number. */
  posix_spawn_file_actions_t actions;
  CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 77) == 0);
  arguments[3] = "77";
  CHECK(posix_spawn(&child, self, &actions, NULL, arguments, environ) == 0);
  ended(child, 7);
  child = vfork();
  if (child == 0) {
    if (dup2(fd, 77) == 77) execv(self, arguments);
    _exit(1);
  }
  ended(child, 7);
  CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && has(name, "before+++++"));
  char command[5000];
  snprintf(command, sizeof command, "exec %s %s there %d", self, name, fd);
  int status = system(command);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && has(name, "before++++++"));

  /* This program itself goes on as another one, in a child that no other process shares the file with any more. */
  child = fork();
  if (child == 0) {
    arguments[2] = "alone", arguments[3] = number;
    execv(self, arguments);
    _exit(1);
  }
  CHECK(close(fd) == 0);
  ended(child, 7);
  CHECK(has(name, "before++++++alone"));
}

static int alone(int fd) {
  if (write(fd, "al", 2) != 2) return 1;
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  execl(self, self, name, "once more", number, (char *)NULL);
  return 2;
}

static int once_more(int fd) { return write(fd, "one", 3) == 3 && close(fd) == 0 ? 7 : 1; }

static int passed_to(int socket) {
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(socket, &message, 0) != 1) return -1;
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  int fd;
  if (!part || part->cmsg_type != SCM_RIGHTS) return -1;
  memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return fd;
}

static int pass(int socket, int fd) {
  char byte = 'x', room[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET, part->cmsg_type = SCM_RIGHTS, part->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(part), &fd, sizeof fd);
  return sendmsg(socket, &message, 0) == 1;
}

static void sockets(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char byte;
    if (fd < 0 || write(fd, "child", 5) != 5 || !pass(ends[1], fd) || read(ends[1], &byte, 1) != 1) _exit(1);
    _exit(at(fd, 12) && write(fd, "!", 1) == 1 ? 7 : 2);
  }
  int fd = passed_to(ends[0]);
  CHECK(fd >= 0 && at(fd, 5) && write(fd, ", other", 7) == 7 && write(ends[0], "x", 1) == 1);
  ended(child, 7);
  CHECK(at(fd, 13) && has(name, "child, other!") && close(fd) == 0);
}

/* If a child is killed, only what it wrote since the last SYNC is rolled back. */
static int killed(void) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, "parent", 6) == 6);
  pid_t child = fork();
  if (child == 0) {
    if (pwrite(fd, "C", 1, 0) != 1 || fsync(fd) != 0) _exit(1);
    if (pwrite(fd, "LOST", 4, 2) != 4 || pwrite(fd, "LOST", 4, 20) != 4) _exit(2);
    kill(getpid(), SIGKILL);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  char buffer[32];
  CHECK(pread(fd, buffer, sizeof buffer, 0) == 6 && !memcmp(buffer, "Carent", 6));
  CHECK(write(fd, "+", 1) == 1 && fsync(fd) == 0 && write(fd, "lost", 4) == 4);
  kill(getpid(), SIGKILL);
  return 1;
}

/* The parent is killed while its child lives, which has used the file before or not: only the parent's writes are
 * rolled back. */
static int orphan(bool before) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
  char buffer[32];
  CHECK(fd >= 0 && write(fd, "committed", 9) == 9 && fsync(fd) == 0 && pipe(ends) == 0);
  pid_t parent = getpid(), child = fork();
  if (child != 0) {
    CHECK(read(ends[0], buffer, 1) == 1 && pwrite(fd, "LOST", 4, 0) == 4 && pwrite(fd, "LOST", 4, 40) == 4);
    kill(parent, SIGKILL);
  }
  /* The parent can be no parent any more, and one of its threads not have closed its files. */
  struct pollfd end = {(int)syscall(SYS_pidfd_open, parent, 0), POLLIN, 0};
  CHECK(end.fd >= 0);
  if (before) CHECK(pwrite(fd, "C", 1, 0) == 1 && pread(fd, buffer, 1, 8) == 1);
  CHECK(write(ends[1], "x", 1) == 1);
  CHECK(poll(&end, 1, -1) == 1);
  const char *wanted = before ? "Committed" : "committed";
  CHECK(pread(fd, buffer, sizeof buffer, 0) == 9 && !memcmp(buffer, wanted, 9));
  CHECK(lseek(fd, 0, SEEK_END) == 9 && write(fd, "+", 1) == 1 && fsync(fd) == 0);
  printf("well\n");
  return 0;
}

int main(int argc, char **argv) {
  CHECK(argc >= 2 && readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  name = argv[1];
  if (argc == 3 && !strcmp(argv[2], "kill")) return killed();
  if (argc == 3 && !strcmp(argv[2], "orphan")) return orphan(false);
  if (argc == 3 && !strcmp(argv[2], "orphan before")) return orphan(true);
  if (argc == 4 && !strcmp(argv[2], "there")) return there(atoi(argv[3]));
  if (argc == 4 && !strcmp(argv[2], "alone")) return alone(atoi(argv[3]));
  if (argc == 4 && !strcmp(argv[2], "once more")) return once_more(atoi(argv[3]));
  forked(fork);
  forked(_Fork);
  workers();
  flags();
  programs();
  sockets();
  return 0;
}
