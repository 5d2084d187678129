/* Looks at a name that is not there, again and again, while it is made and removed behind the library's back. */
#include "check.h"
#include <limits.h>
#include <sched.h>

int main(void) {
  char folder[PATH_MAX], name[PATH_MAX + 20], link_name[PATH_MAX + 20];
  CHECK(getcwd(folder, sizeof folder));
  snprintf(name, sizeof name, "%s/atomic-journal", folder);
  snprintf(link_name, sizeof link_name, "%s/atomic-link", folder);
  int fd = open("atomic", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  CHECK(fd >= 0);
  bool is_there = false;
  uint32_t seed = 1;
  struct stat shown;
  for (int i = 0; i < 300000; i++) {
    seed = seed * 1664525 + 1013904223;
    /* Mostly long runs of looks, so that the name is remembered as absent. */
    if ((seed >> 8) % 2000 == 0) {
      if (is_there) {
        CHECK(inlined(SYS_unlinkat, AT_FDCWD, (long)name, 0, 0) == 0);
      } else {
        long made = inlined(SYS_openat, AT_FDCWD, (long)name, O_CREAT | O_EXCL | O_WRONLY, 0644);
        CHECK(made >= 0 && inlined(SYS_close, made, 0, 0, 0) == 0);
      }
      is_there = !is_there;
    }
    CHECK((stat(name, &shown) == 0) == is_there);
    if (!is_there) CHECK(errno == ENOENT);
    CHECK((lstat(name, &shown) == 0) == is_there);
    if ((seed >> 8) % 100 == 0) sched_yield();
  }
  /* A link that leads nowhere is there, and may lead somewhere at any moment. */
  CHECK(symlink("elsewhere", link_name) == 0);
  for (int i = 0; i < 1000; i++) FAILS(stat(link_name, &shown), ENOENT);
  CHECK(inlined(SYS_mkdirat, AT_FDCWD, (long)"elsewhere", 0755, 0) == 0);
  CHECK(stat(link_name, &shown) == 0);
  FAILS(stat((const char *)1, &shown), EFAULT);
  FAILS(fstatat(AT_FDCWD, "", &shown, 0), ENOENT);
  return 0;
}
