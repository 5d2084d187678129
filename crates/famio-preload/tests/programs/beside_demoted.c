/* Two processes that write one file at the same time: one that cannot protect it, and this one, which could. The first
 * argument is the file, the second the case. */
#include "check.h"
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define NOBODY 65534

static int to_first[2], to_second[2];

static void go_on(const int *other) { CHECK(write(other[1], "", 1) == 1); }

static void wait_for(const int *other) {
  char byte;
  CHECK(read(other[0], &byte, 1) == 1);
}

static void put(int fd, const char *text, off_t at) {
  CHECK(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text));
  CHECK(fsync(fd) == 0);
}

static void shows(int fd, const char *text) {
  char bytes[64] = "";
  CHECK(pread(fd, bytes, sizeof bytes - 1, 0) == (ssize_t)strlen(text));
  CHECK(strcmp(bytes, text) == 0);
}

static void become_nobody(void) {
  CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* The file is the kernel's to it from its first write on. */
static void first(const char *path, const char *how, int fd) {
  CHECK(close(to_first[1]) == 0); /* if the other process fails, this one does not wait for ever */
  if (strcmp(how, "opened as root") == 0) CHECK((fd = open(path, O_RDWR)) >= 0);
  become_nobody();
  if (fd < 0) CHECK((fd = open(path, O_RDWR)) >= 0);
  put(fd, "c", 2);
  if (strcmp(how, "continued by a child") == 0 && fork() > 0) _exit(0);
  go_on(to_second);
  wait_for(to_first);
  put(fd, "d", 3);
  go_on(to_second);
  wait_for(to_first);
  shows(fd, "..cdeg..");
  CHECK(close(fd) == 0);
  go_on(to_second);
  _exit(0);
}

static void is_refused(const char *program, const char *path) {
  int status = 0;
  if (fork() == 0) {
    CHECK(setenv("FAMIO_REQUIRE", "1", 1) == 0);
    execl(program, program, path, "write where that is refused", NULL);
  }
  CHECK(wait(&status) > 0 && status == 0);
}

/* As the other user, the process may not remove what it has noted when it closes the file. Later it is root again. If
 * it has mapped the file, other processes need the note to its end. */
static void leaves_its_own_note(const char *path, bool maps) {
  int fd = open(path, O_RDWR), status = 0;
  CHECK(fd >= 0 && seteuid(NOBODY) == 0);
  put(fd, "c", 2);
  CHECK(!maps || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
  CHECK(close(fd) == 0 && seteuid(0) == 0);
  CHECK(listxattr(path, NULL, 0) > 0);
  CHECK((fd = open(path, O_RDWR)) >= 0);
  put(fd, "e", 4);
  if (maps) {
    CHECK(close(fd) == 0 && listxattr(path, NULL, 0) > 0);
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    put(fd, "g", 5);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  shows(fd, "..c.eg..");
  CHECK(close(fd) == 0 && listxattr(path, NULL, 0) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *how = argv[2];
  int fd = -1;
  if (strcmp(how, "write where that is refused") == 0) {
    CHECK((fd = open(path, O_RDWR)) >= 0);
    FAILS(pwrite(fd, "e", 1, 4), EBUSY);
    return 0;
  }
  if (strcmp(how, "left by itself") == 0 || strcmp(how, "mapped by itself") == 0) {
    leaves_its_own_note(path, how[0] == 'm');
    return 0;
  }
  CHECK(pipe(to_first) == 0 && pipe(to_second) == 0);
  bool is_inherited = strcmp(how, "inherited") == 0;
  if (is_inherited) CHECK((fd = open(path, O_RDWR)) >= 0);
  pid_t child = fork();
  if (child == 0) first(path, how, fd);
  CHECK(close(to_second[1]) == 0);
  wait_for(to_second);
  int status = 0;
  if (strcmp(how, "continued by a child") == 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
  if (strcmp(how, "required") == 0) {
    is_refused(argv[0], path);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(listxattr(path, NULL, 0) > 0); /* what it has noted is over */
  }
  if (!is_inherited) CHECK((fd = open(path, O_RDWR)) >= 0);
  put(fd, "e", 4);
  if (strcmp(how, "required") == 0) {
    CHECK(close(fd) == 0 && listxattr(path, NULL, 0) == 0);
    return 0;
  }
  shows(fd, "..c.e...");
  go_on(to_first);
  wait_for(to_second);
  shows(fd, "..cde...");
  put(fd, "g", 5);
  go_on(to_first);
  wait_for(to_second);
  CHECK(read(to_second[0], &status, 1) == 0); /* it is about to end */
  if (strcmp(how, "continued by a child") != 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(close(fd) == 0);
  CHECK(listxattr(path, NULL, 0) == 0);
  return 0;
}
