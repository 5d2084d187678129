/* Demoted files, and the program's standard error, when another program goes on with them. Arguments: the file, the
 * case, and after exec the descriptor. */
#include "check.h"
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;
static char self[4096];

static void go_on(const char *how, int fd) {
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  execl(self, self, "atomic", how, number, (char *)NULL);
  CHECK(!"exec");
}

static void write_atomic(void) {
  int fd = open("atomic", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "bytes", 5) == 5 && close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *name = argv[1], *how = argv[2];
  int fd = argc > 3 ? atoi(argv[3]) : -1;
  char bytes[16] = "";
  CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  if (!strcmp(how, "write-only") || !strcmp(how, "write-only-shared")) {
    CHECK((fd = open(name, O_WRONLY | O_CREAT, 0600)) >= 0);
    if (how[10]) go_on("write-only-2", fd);
    CHECK(dup2(fd, 0) == 0 && pwrite(0, "first", 5, 0) == 5);
    FAILS(pread(fd, bytes, 5, 0), EBADF);
    go_on("written", fd);
  } else if (!strcmp(how, "write-only-2")) {
    CHECK(dup2(fd, 0) == 0 && pwrite(0, "first", 5, 0) == 5);
    go_on("written", fd);
  } else if (!strcmp(how, "written")) {
    for (int i = 0; i < 2; i++) {
      int one = i ? fd : 0;
      FAILS(read(one, bytes, 5), EBADF);
      FAILS(pread(one, bytes, 5, 0), EBADF);
      CHECK((fcntl(one, F_GETFL) & O_ACCMODE) == O_WRONLY);
    }
    /* Opened again, the file is as ordinary as through the received descriptor: otherwise its bytes would be
     * written past a log. */
    int other = open(name, O_RDWR);
    CHECK(other >= 0 && ftruncate(other, 2) == 0 && pwrite(other, "XY", 2, 3) == 2);
    CHECK(pwrite(fd, "AB", 2, 0) == 2 && pread(other, bytes, 5, 0) == 5 && !memcmp(bytes, "AB\0XY", 5));
    CHECK(fsync(other) == 0 && close(other) == 0);
  } else if (!strcmp(how, "mapped")) {
    /* The SYNC that finds its name gone, and another left, demotes it. */
    CHECK((fd = open(name, O_RDWR | O_CREAT, 0600)) >= 0 && ftruncate(fd, 1 << 20) == 0 && fsync(fd) == 0);
    char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && strcpy(map, "stored") && fsync(fd) == 0);
    CHECK(link(name, "link") == 0 && unlink(name) == 0);
    for (int i = 0; i < 20; i++) {
      snprintf(map, 10, "stored %d", i);
      CHECK(fsync(fd) == 0 && pread(fd, bytes, 10, 0) == 10 && !strcmp(bytes, map));
      usleep(5000); /* for the background, which once mapped something else there */
    }
  } else if (!strcmp(how, "append")) {
    CHECK((fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0 && write(fd, "one", 3) == 3);
    go_on("appended", fd);
  } else if (!strcmp(how, "appended")) {
    CHECK(close(0) == 0 && dup(fd) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && inlined(SYS_write, 0, (long)"two", 3, 0) == 3); /* as libc's own stream does */
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "three", 5) == 5 && lseek(0, 0, SEEK_CUR) == 11);
  } else if (!strcmp(how, "append-forked")) {
    /* The child has the description as well, and has not used it yet. */
    int go[2];
    CHECK((fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0 && write(fd, "one", 3) == 3 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
      if (read(go[0], bytes, 1) != 1 || pwrite(fd, "three", 5, 0) != 5 || fsync(fd) != 0) _exit(1);
      _exit(0);
    }
    int status;
    CHECK(close(0) == 0 && dup(fd) == 0 && write(0, "two", 3) == 3 && write(go[1], "", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  } else if (!strcmp(how, "forked")) {
    /* The child demotes the file before it has used the inherited descriptor. */
    CHECK((fd = open(name, O_RDWR | O_CREAT, 0600)) > 2 && write(fd, "one", 3) == 3);
    pid_t child = fork();
    if (child == 0) {
      char all[8192];
      CHECK(close(0) == 0 && open(name, O_RDWR) == 0 && close(0) == 0 && pwrite(fd, "two", 3, 3) == 3);
      CHECK(open(name, O_RDWR) == 0 && pwrite(0, "three", 5, 6) == 5);
      CHECK(pread(fd, all, sizeof all, 0) == 11 && pread(0, all, sizeof all, 0) == 11);
      _exit(0);
    }
    int status;
    CHECK(close(fd) == 0 && waitpid(child, &status, 0) == child && status == 0);
  } else if (!strcmp(how, "forked-after")) {
    /* It could not be protected when it was first read; later it could, but a child has it by then. */
    int go[2], status;
    struct rlimit none, before;
    write_atomic();
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && (none = before, none.rlim_cur = 0, setrlimit(RLIMIT_FSIZE, &none)) == 0);
    CHECK((fd = open(name, O_RDWR)) > 2 && read(fd, bytes, 5) == 5 && setrlimit(RLIMIT_FSIZE, &before) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
      int other = open(name, O_RDWR);
      CHECK(pwrite(other, "one", 3, 0) == 3 && pwrite(fd, "two", 3, 3) == 3 && pread(other, bytes, 6, 0) == 6 && !memcmp(bytes, "onetwo", 6));
      CHECK(close(other) == 0 && read(go[0], bytes, 1) == 1 && pwrite(fd, "last", 4, 11) == 4);
      _exit(0);
    }
    CHECK(close(fd) == 0 && (fd = open(name, O_RDWR)) > 2 && pwrite(fd, "three", 5, 6) == 5 && write(go[1], "", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && close(fd) == 0);
  } else if (!strcmp(how, "data") || !strcmp(how, "spawned")) {
    CHECK(close(2) == 0 && open("plain", O_RDWR | O_CREAT, 0600) == 2);
    if (*how == 'd') go_on("write", 2);
    pid_t child;
    int status;
    char *const arguments[] = {self, "atomic", "write", NULL};
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  } else if (!strcmp(how, "log")) {
    CHECK((fd = open("log", O_WRONLY | O_CREAT, 0600)) >= 0 && dup2(fd, 2) == 2 && close(fd) == 0);
    go_on("write", 2);
  } else if (!strcmp(how, "write")) {
    write_atomic();
  } else if (!strcmp(how, "stat")) {
    /* The descriptor with which the library looks must not become a standard stream. */
    struct stat stat;
    int status;
    CHECK((fd = open(name, O_RDWR | O_CREAT, 0600)) >= 0 && close(1) == 0 && write(fd, "bytes", 5) == 5);
    pid_t child = fork();
    if (child == 0) _exit(lstat(name, &stat) == 0 && stat.st_size == 5 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  } else {
    CHECK(!"a way");
  }
  return 0;
}
