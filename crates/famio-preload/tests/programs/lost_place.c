/* `rm -r .famio` while a file is open, and processes that attach to it afterwards. Arguments: the file, and how
 * they attach. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>

static int fd;

static void take_away(void) { CHECK(system("rm -r .famio") == 0); }

static void ended(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void in_child(const char *sees, const char *writes) {
  pid_t child = fork();
  if (child == 0) {
    char bytes[8] = "";
    _exit(pread(fd, bytes, 5, 0) == 5 && !memcmp(bytes, sees, 5) && pwrite(fd, writes, 5, 5) == 5 ? 0 : 1);
  }
  ended(child);
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *how = argv[2];
  char bytes[16] = "";
  CHECK((fd = open(argv[1], O_RDWR | O_CREAT, 0600)) >= 0);
  CHECK(pwrite(fd, "firstfirst", 10, 0) == 10 && fsync(fd) == 0);
  CHECK(pwrite(fd, "later", 5, 0) == 5);
  if (!strcmp(how, "travels")) { /* what both wrote is being handed over when it is removed */
    in_child("later", "child");
    take_away();
    CHECK(pread(fd, bytes, 10, 0) == 10 && !memcmp(bytes, "laterchild", 10));
  } else { /* the child must find the owner of a session without a name */
    take_away();
    in_child("later", "child");
  }
  CHECK(pread(fd, bytes, 10, 0) == 10 && !memcmp(bytes, "laterchild", 10));
  CHECK(pwrite(fd, "LATER", 5, 0) == 5);
  if (!strcmp(how, "killed")) raise(SIGKILL);
  CHECK(fsync(fd) == 0);
  in_child("LATER", "CHILD");
  CHECK(pread(fd, bytes, 10, 0) == 10 && !memcmp(bytes, "LATERCHILD", 10));
  if (!strcmp(how, "synced")) {
    CHECK(fsync(fd) == 0 && pwrite(fd, "none", 4, 0) == 4);
    raise(SIGKILL);
  }
  return close(fd);
}
