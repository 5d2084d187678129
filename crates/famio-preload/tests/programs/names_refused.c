/* A file has two SYNCs and the half of a third epoch when a call fails that names it, or that changes nothing. It is
 * killed with more of that epoch written. Usage: names_refused FILE WHAT. Exit status 77: it has to be root. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { HALF = 4096 };

static void put(int fd, char byte, off_t at, size_t size) {
  char bytes[2 * HALF];
  memset(bytes, byte, size);
  CHECK(pwrite(fd, bytes, size, at) == (ssize_t)size);
}

static void sandbox(struct sock_filter *filter, unsigned short length) {
  struct sock_fprog program = {length, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Forbids the calls with this number and this pointer, which the library does not foresee. */
static void forbid(int number, int argument, const char *pointer) {
  size_t lower_half = offsetof(struct seccomp_data, args) + (size_t)argument * sizeof(uint64_t);
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)lower_half),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(uintptr_t)pointer, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sandbox(filter, sizeof filter / sizeof *filter);
}

/* The library foresees that no name may be changed, as if that had changed just before the call. */
static void mislead(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sandbox(filter, sizeof filter / sizeof *filter);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *what = argv[2];
  char path[64], again[80], below[80];
#define IS(name) (strcmp(what, name) == 0)
  bool needs_root = IS("folder-rights") || IS("sticky");
  if (needs_root && geteuid() != 0) return 77;
  snprintf(path, sizeof path, "%s", argv[1]);
  if (needs_root) {
    snprintf(path, sizeof path, "rights/%s", argv[1]);
    CHECK(mkdir("rights", 0755) == 0 && chmod("rights", IS("sticky") ? 01777 : 0755) == 0);
  }
  snprintf(again, sizeof again, "./%s", path);
  snprintf(below, sizeof below, "%s/", path);
  int other = open("ordinary", O_RDWR | O_CREAT, 0644);
  CHECK(other >= 0 && close(other) == 0 && mkdir("empty", 0755) == 0);

  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0);
  put(fd, 'a', 0, 2 * HALF);
  CHECK(fsync(fd) == 0);
  put(fd, 'A', 0, 2 * HALF);
  CHECK(fsync(fd) == 0);
  put(fd, 'B', 0, HALF);

  if (IS("none")) {
  } else if (IS("same")) {
    CHECK(rename(path, again) == 0);
  } else if (IS("same-exchange")) {
    CHECK(renameat2(AT_FDCWD, path, AT_FDCWD, again, RENAME_EXCHANGE) == 0);
  } else if (IS("noreplace")) {
    FAILS(renameat2(AT_FDCWD, "ordinary", AT_FDCWD, path, RENAME_NOREPLACE), EEXIST);
  } else if (IS("missing")) {
    FAILS(rename("no such file", path), ENOENT);
    FAILS(rename(path, "no such folder/name"), ENOENT);
    FAILS(renameat2(AT_FDCWD, path, AT_FDCWD, "no such file", RENAME_EXCHANGE), ENOENT);
    FAILS(link(path, "no such folder/name"), ENOENT);
    FAILS(rename(path, NULL), EFAULT);
  } else if (IS("folder")) {
    FAILS(rename("empty", path), ENOTDIR);
    FAILS(rename(path, "empty"), EISDIR);
    FAILS(unlinkat(AT_FDCWD, path, AT_REMOVEDIR), ENOTDIR);
    FAILS(unlink(below), ENOTDIR);
    FAILS(rename(path, "name/"), ENOTDIR);
  } else if (IS("flags")) {
    FAILS(unlinkat(AT_FDCWD, path, 0x4000), EINVAL);
    FAILS(renameat2(AT_FDCWD, "ordinary", AT_FDCWD, path, RENAME_NOREPLACE | RENAME_EXCHANGE), EINVAL);
    FAILS(renameat2(AT_FDCWD, path, AT_FDCWD, "ordinary", 1 << 30), EINVAL);
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "name", 1), EINVAL);
  } else if (IS("link")) {
    FAILS(link(path, "ordinary"), EEXIST);
    FAILS(link(path, path), EEXIST);
  } else if (IS("elsewhere")) {
    /* The test's other file system. */
    char far[128];
    snprintf(far, sizeof far, "%s/famio-test-names-far-%d", getenv("ELSEWHERE"), (int)getpid());
    other = open(far, O_RDWR | O_CREAT, 0644);
    CHECK(other >= 0 && close(other) == 0);
    FAILS(rename(far, path), EXDEV);
    CHECK(unlink(far) == 0);
    FAILS(rename(path, far), EXDEV);
    FAILS(link(path, far), EXDEV);
  } else if (needs_root) {
    CHECK(seteuid(65534) == 0);
    FAILS(unlink(path), IS("sticky") ? EPERM : EACCES);
    FAILS(rename(path, again + 2 + strlen("rights/")), IS("sticky") ? EPERM : EACCES);
  } else if (IS("unforeseen-unlink")) {
    forbid(SYS_unlinkat, 1, path);
    FAILS(unlink(path), EPERM);
  } else if (IS("unforeseen-rename")) {
    forbid(SYS_renameat2, 1, path);
    forbid(SYS_renameat2, 3, path);
    FAILS(rename(path, "name"), EPERM);
    FAILS(rename("ordinary", path), EPERM);
  } else if (IS("moved-against-foresight")) {
    mislead();
    CHECK(rename(path, "empty/atomic") == 0);
  } else if (IS("gone-against-foresight")) {
    mislead();
    CHECK(link(path, "kept") == 0 && unlink("kept") == 0 && unlink(path) == 0);
  } else {
    CHECK(!"known");
  }
  put(fd, 'C', HALF, HALF);
  char seen[2 * HALF];
  CHECK(pread(fd, seen, sizeof seen, 0) == sizeof seen && seen[0] == 'B' && seen[HALF] == 'C');
  raise(SIGKILL);
}
