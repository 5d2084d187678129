/* A limit on the address space far below what the library has mapped: the program gets what it asked for.
 * Arguments: the atomic file; or "after", the limit with which this program begins, and whether it runs with the
 * library. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static void __attribute__((noinline)) deep(int mib) {
  volatile char here[1 << 20];
  here[0] = here[sizeof here - 1] = 1;
  if (mib > 1) deep(mib - 1);
  here[1] = here[0];
}

/* Memory within the limit can be had, and the limit holds. */
static void has_room(void) {
  char *memory = malloc(100 * MIB);
  CHECK(memory != NULL);
  memset(memory, 1, 100 * MIB);
  free(memory);
  deep(6);
  CHECK(mmap(NULL, 1024 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
}

static void is(rlim_t soft, rlim_t hard) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
  CHECK(prlimit(getpid(), RLIMIT_AS, NULL, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
  CHECK(syscall(SYS_getrlimit, RLIMIT_AS, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
}

static void use(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && pwrite(fd, "text", 4, 100000) == 4 && fsync(fd) == 0 && close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  if (strcmp(argv[1], "after") == 0) {
    struct rlimit limit, kernels;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == (rlim_t)atol(argv[2]));
    CHECK(inlined(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&kernels) == 0);
    if (strcmp(argv[3], "without") == 0) {
      CHECK(kernels.rlim_cur == limit.rlim_cur);
      return 0;
    }
    /* For its own user: threads of the library's are not limited. */
    CHECK(kernels.rlim_cur > limit.rlim_cur);
    use("atomic-3");
    has_room();
    setenv("LD_PRELOAD", "", 1);
    execl("/proc/self/exe", "program", "after", argv[2], "without", NULL);
    _exit(1);
  }
  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), status;
  CHECK(fd >= 0 && pwrite(fd, "text", 4, 0) == 4 && fsync(fd) == 0);
  struct rlimit none, limit, old;
  CHECK(getrlimit(RLIMIT_AS, &none) == 0);
  limit = none;
  limit.rlim_cur = 256 * MIB;
  CHECK(prlimit(0, RLIMIT_AS, &limit, &old) == 0 && old.rlim_cur == none.rlim_cur && old.rlim_max == none.rlim_max);
  is(256 * MIB, none.rlim_max);
  has_room();
  /* The limit adapts to files that are opened and closed. */
  use("atomic-2");
  CHECK(pwrite(fd, "more", 4, 4) == 4 && fsync(fd) == 0);
  has_room();
  CHECK(execl("/nowhere/at-all", "at-all", NULL) == -1);
  is(256 * MIB, none.rlim_max);
  has_room();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    is(256 * MIB, none.rlim_max);
    use(argv[1]);
    limit.rlim_max = 300 * MIB;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    is(256 * MIB, 300 * MIB);
    use("atomic-3");
    deep(6);
    char text[32];
    snprintf(text, sizeof text, "%zu", 256 * MIB);
    const char *library = getenv("LD_PRELOAD");
    execl("/proc/self/exe", "program", "after", text, library && *library ? "with" : "without", NULL);
    _exit(1);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  limit = (struct rlimit){2, 1};
  FAILS(setrlimit(RLIMIT_AS, &limit), EINVAL);
  CHECK(setrlimit(RLIMIT_AS, &none) == 0);
  is(none.rlim_cur, none.rlim_max);
  CHECK(close(fd) == 0 && unlink("atomic-2") == 0 && unlink("atomic-3") == 0);
  return 0;
}
