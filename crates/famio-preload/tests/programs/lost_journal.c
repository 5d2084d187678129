/* The journal disappears while the file is open. Arguments: the file, and what happens to the journal. A later SYNC
 * creates the journal again, or fails. */
#include "check.h"
#include <signal.h>

static int fd;

static bool write_all(char letter) {
  static char block[64 << 10];
  memset(block, letter, sizeof block);
  for (int i = 0; i < 24; i++)
    if (pwrite(fd, block, sizeof block, (off_t)i * sizeof block) != sizeof block) return false;
  return true;
}

/* The command takes so long that the previous check for the journal is outdated. */
static void run(const char *command) {
  int done = system(command);
  CHECK(done == 0);
  for (int i = 0; i < 3; i++) CHECK(system("true") == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *path = argv[1], *how = argv[2];
  CHECK((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0);
  CHECK(write_all('a') && fsync(fd) == 0);
  bool fails = false, clean = strcmp(how, "closed") == 0;
  if (clean || strcmp(how, "removed") == 0 || strcmp(how, "unwritten") == 0) {
    run("rm -r .famio");
  } else if (strcmp(how, "moved") == 0) {
    run("mv .famio elsewhere");
  } else if (strcmp(how, "folder") == 0) {
    run("mkdir there && env -u LD_PRELOAD mv .famio atomic there/");
  } else if (strcmp(how, "file") == 0) {
    run("mkdir there && env -u LD_PRELOAD mv atomic there/");
  } else if (strcmp(how, "known") == 0) {
    /* The journal's folder first: the file, which is moved through the library, is closed clean before, and finds
     * no journal to remove. */
    run("mkdir there && mv .famio there/ && mv atomic there/");
  } else if (strcmp(how, "replaced") == 0) {
    run("cd .famio; for j in *.journal; do mv $j ../taken; echo other >$j; done");
    fails = true;
  } else if (strcmp(how, "pool") == 0) {
    run("mv pool taken");
    fails = true;
  } else if (strcmp(how, "pool-removed") == 0) {
    run("rm pool/*");
  } else {
    CHECK(!"a way");
  }
  if (strcmp(how, "unwritten") == 0) {
    /* Nothing was written since; what was committed must still be found. */
    CHECK(fsync(fd) == 0);
    raise(SIGKILL);
  }
  CHECK(write_all('b'));
  if (fails) {
    FAILS(fsync(fd), EIO);
    FAILS(fsync(fd), EIO);
    errno = 0;
    CHECK(!write_all('c') && errno == EIO);
    char byte;
    CHECK(pread(fd, &byte, 1, 0) == 1);
    return 0;
  }
  CHECK(fsync(fd) == 0 && write_all('c') && fdatasync(fd) == 0);
  if (clean) {
    CHECK(close(fd) == 0 && (fd = open(path, O_RDWR)) >= 0 && write_all('c') && close(fd) == 0);
    return 0;
  }
  CHECK(write_all('d'));
  raise(SIGKILL);
}
