/* A program gets the file of the first argument by a handle, or by a descriptor of its parent's (pidfd_getfd), and writes
 * it while its parent has changed it. */
#include "check.h"
#include <sys/syscall.h>
#include <sys/wait.h>

static int get(const char *path, const char *how, int parents) {
  if (strcmp(how, "getfd") == 0) return syscall(SYS_pidfd_getfd, (int)syscall(SYS_pidfd_open, getppid(), 0), parents, 0);
  union {
    struct file_handle handle;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
  } name = {.handle.handle_bytes = MAX_HANDLE_SZ};
  int mount, folder = open(".", O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0 && name_to_handle_at(AT_FDCWD, path, &name.handle, &mount, 0) == 0);
  return open_by_handle_at(folder, &name.handle, strcmp(how, "write-only") == 0 ? O_WRONLY : O_RDWR);
}

int main(int argc, char **argv) {
  char found[8] = "", number[16];
  int status;
  CHECK(argc >= 3);
  if (argc == 4) { /* the child's program */
    int fd = get(argv[1], argv[2], atoi(argv[3]));
    if (strcmp(argv[2], "write-only") == 0) { /* refused, since it would be written past the parent's session */
      CHECK(fd < 0 && errno == EBUSY);
      return 0;
    }
    CHECK(fd >= 0 && pread(fd, found, 8, 0) == 4 && memcmp(found, "BBAA", 4) == 0);
    CHECK(pwrite(fd, "C", 1, 2) == 1 && fsync(fd) == 0);
    return 0;
  }
  int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && pwrite(fd, "aaaa", 4, 0) == 4 && fsync(fd) == 0 && pwrite(fd, "AAAA", 4, 0) == 4);
  CHECK(fsync(fd) == 0 && pwrite(fd, "BB", 2, 0) == 2);
  pid_t child = fork();
  if (child == 0) {
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", argv[0], argv[1], argv[2], number, NULL);
    _exit(9);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(pwrite(fd, "D", 1, 3) == 1 && fsync(fd) == 0 && pread(fd, found, 8, 0) == 4);
  CHECK(memcmp(found, strcmp(argv[2], "write-only") ? "BBCD" : "BBAD", 4) == 0);
  return 0;
}
