/* A program that changes its user or root, or a file's owner, and goes on with files that it has open. The first
 * argument is the file, the second the case. */
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define NOBODY 65534

static void put(int fd, const char *text, off_t at) {
  CHECK(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text));
}

static void become_nobody(void) {
  CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* The number of journals in .famio/. */
static int journals(void) {
  DIR *all = opendir(".famio");
  int found = 0;
  for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;)
    found += strstr(entry->d_name, ".journal") != NULL;
  CHECK(all == NULL || closedir(all) == 0);
  return found;
}

static int is_marked(const char *path) { return getxattr(path, "user.famio", NULL, 0) > 0; }

static void wait_for(pid_t child) {
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *path = argv[1], *what = argv[2];
  if (strcmp(what, "after the exec") == 0) {
    CHECK(close(0) == 0 && dup(atoi(argv[3])) == 0 && write(0, "!", 1) == 1);
    return 0;
  }
  if (strcmp(what, "opened under a low limit") == 0) {
    struct rlimit limit = {3 << 19, RLIM_INFINITY};
    char bytes[8] = "";
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FAILS(open(path, O_RDWR), EFBIG);
    FAILS(open(path, O_RDONLY), EFBIG);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int again = open(path, O_RDONLY);
    CHECK(again >= 0 && pread(again, bytes, 7, 2 << 20) == 7 && strcmp(bytes, "Program") == 0);
    return 0;
  }
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  CHECK(fd >= 0);
  put(fd, "program", 0);
  if (strncmp(what, "demoted as another", 18) == 0) {
    CHECK(fchmod(fd, strstr(what, "0644") ? 0644 : 0666) == 0 && close(0) == 0);
    CHECK(seteuid(NOBODY) == 0 && open(path, O_RDONLY) == 0 && seteuid(0) == 0);
    CHECK(journals() == 0 && !is_marked(path));
    put(fd, "P", 0); /* to the kernel's file */
    CHECK(has(path, "Program"));
  } else if (strcmp(what, "renamed as another") == 0) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && fsync(fd) == 0 && seteuid(NOBODY) == 0);
    CHECK(rename(path, "atomic-2") == 0 && journals() == 1 && is_marked("atomic-2"));
    CHECK(seteuid(0) == 0 && journals() == 0 && !is_marked("atomic-2") && rename("atomic-2", path) == 0);
    pid_t child = fork();
    if (child == 0) {
      struct flock other = lock;
      CHECK(fcntl(fd, F_GETLK, &other) == 0 && other.l_type == F_WRLCK); /* the parent's record lock is still there */
      _exit(0);
    }
    wait_for(child);
    put(fd, "P", 0); /* protected again */
    CHECK(fsync(fd) == 0 && is_marked(path));
    put(fd, "lost", 0);
    raise(SIGKILL);
  } else if (strcmp(what, "renamed in another root") == 0) {
    CHECK(fchmod(fd, 0644) == 0 && fsync(fd) == 0 && chroot(".") == 0);
    become_nobody();
    CHECK(rename(path, "atomic-2") == 0 && close(0) == 0 && dup(fd) == 0 && write(0, "P", 1) == 1);
    CHECK(rename("atomic-2", path) == 0);
  } else if (strcmp(what, "exec as another") == 0) {
    char number[16];
    int appends = open(path, O_RDWR | O_APPEND);
    CHECK(appends >= 0 && fchown(fd, NOBODY, NOBODY) == 0 && fsync(fd) == 0);
    become_nobody();
    snprintf(number, sizeof number, "%d", appends);
    execl(argv[0], argv[0], path, "after the exec", number, (char *)NULL);
    CHECK(!"exec");
  } else if (strcmp(what, "a child takes the file back") == 0) {
    int go[2];
    CHECK(pipe(go) == 0 && fchown(fd, NOBODY, NOBODY) == 0 && fsync(fd) == 0);
    put(fd, "P", 0);
    pid_t child = fork();
    if (child == 0) {
      CHECK(fchown(fd, 0, 0) == 0);
      put(fd, "r", 1);
      CHECK(fsync(fd) == 0);
      _exit(0);
    }
    wait_for(child);
  } else if (strcmp(what, "a low limit while others end") == 0) {
    pid_t child = fork();
    if (child == 0) {
      struct rlimit low = {0, RLIM_INFINITY};
      char bytes[8] = "";
      CHECK(close(fd) == 0 && setrlimit(RLIMIT_FSIZE, &low) == 0);
      CHECK((fd = open(path, O_RDWR)) >= 0 && read(fd, bytes, 7) == 7 && strcmp(bytes, "program") == 0);
      _exit(0);
    }
    usleep(100000);
    CHECK(close(fd) == 0);
    wait_for(child);
  } else if (strcmp(what, "killed with a large file") == 0) {
    put(fd, "program", 2 << 20);
    CHECK(fsync(fd) == 0);
    put(fd, "Program", 2 << 20);
    CHECK(fsync(fd) == 0);
    raise(SIGKILL);
  } else {
    CHECK(!"known");
  }
  return 0;
}
