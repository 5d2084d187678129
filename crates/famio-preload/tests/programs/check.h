/* Checks for the test programs: a failed check is printed and ends the program. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline void fail_at(const char *file, int line, const char *what) {
  int error = errno;
  char text[512];
  int n = snprintf(text, sizeof text, "%s:%d: %s (errno %d)\n", file, line, what, error);
  write(2, text, (size_t)n);
  abort();
}
#define CHECK(condition) ((condition) ? (void)0 : fail_at(__FILE__, __LINE__, #condition))
/* The call must return -1 with this errno. */
#define FAILS(call, error)                             \
  do {                                                 \
    errno = 0;                                         \
    CHECK((long)(call) == -1);                         \
    CHECK(errno == (error));                           \
  } while (0)
/* The call must succeed, and leave errno unchanged. */
#define WORKS(call)        \
  do {                     \
    errno = 12345;         \
    CHECK((call) != -1);   \
    CHECK(errno == 12345); \
  } while (0)

/* A system call that no library sees. */
static inline long inlined(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}

/* The kernel's own position: it does not move when the library answers. */
static inline long kernel_position(int fd) { return inlined(SYS_lseek, fd, 0, SEEK_CUR, 0); }

static inline bool has(const char *path, const char *bytes) {
  char buffer[4096];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = read(fd, buffer, sizeof buffer);
  close(fd);
  return n == (ssize_t)strlen(bytes) && memcmp(buffer, bytes, (size_t)n) == 0;
}
