/* A program that changes its rights, and files' modes, while it has files open. The first argument is the file, the
 * second the case. */
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define NOBODY 65534
#define USER 1234

static void put(int fd, const char *text, off_t at) {
  CHECK(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text));
}

static void become_nobody(void) {
  CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static int fill(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0;
}

static off_t size_of(int fd) {
  struct stat stat_;
  CHECK(fstat(fd, &stat_) == 0);
  return stat_.st_size;
}

/* Hands the open epoch to a child, so that other processes must commit it. */
static void look_in_child(int fd) {
  struct stat stat;
  pid_t child = fork();
  if (child == 0) {
    char byte;
    CHECK(fstat(fd, &stat) == 0 && pread(fd, &byte, 1, 0) == 1);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Everything in .famio/ is accessible only to users who may access the file. */
static void ours_is_no_more_open_than(mode_t mode) {
  DIR *all = opendir(".famio");
  CHECK(all != NULL);
  int found = 0;
  for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
    struct stat stat;
    if (entry->d_name[0] == '.') continue;
    CHECK(fstatat(dirfd(all), entry->d_name, &stat, 0) == 0);
    CHECK((stat.st_mode & 0777 & ~mode) == 0);
    found++;
  }
  CHECK(found > 1 && closedir(all) == 0);
}

static mode_t mode_of(int fd) {
  struct stat stat;
  CHECK(fstat(fd, &stat) == 0);
  return stat.st_mode & 07777;
}

/* A child that gives something up before its first call, while its parent has unsynced data. */
static void child_gives_up(int fd, const char *what) {
  put(fd, "parent's", 0);
  pid_t child = fork();
  if (child == 0) {
    if (strcmp(what, "chroot in a child") == 0) {
      CHECK(chroot(".") == 0);
    } else if (strcmp(what, "setuid in a child") == 0) {
      become_nobody();
    } else {
      struct rlimit low = {50000, RLIM_INFINITY};
      CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
      CHECK(open("atomic", O_RDWR) >= 0);
    }
    put(fd, "child's!", 8);
    CHECK(fsync(fd) == 0);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *path = argv[1], *what = argv[2];
  if (strcmp(what, "read, then write") == 0) {
    become_nobody();
    int fd = open(path, O_RDONLY);
    char byte;
    look_in_child(fd);
    CHECK(read(fd, &byte, 1) == 1);
    int other = open(path, O_RDWR);
    put(other, "kernel's", 0);
    return 0;
  }
  if (strcmp(what, "root of a user namespace") == 0) {
    CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0);
    /* Its files in /proc are root's otherwise. */
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    if (unshare(CLONE_NEWUSER) != 0) return 77;
    CHECK(fill("/proc/self/setgroups", "deny") && fill("/proc/self/uid_map", "0 1234 1") &&
          fill("/proc/self/gid_map", "0 1234 1"));
    int own = open(path, O_RDWR);
    put(own, "program", 0);
    CHECK(fsync(own) == 0);
    put(own, "P", 0);
    CHECK(fsync(own) == 0 && close(own) == 0);
    return 0;
  }
  int fd = open(path, O_RDWR | O_CREAT, 0644);
  CHECK(fd >= 0);
  if (strcmp(what, "grow where there can be no session") == 0) {
    CHECK(close(fd) == 0);
    become_nobody();
    CHECK((fd = open(path, O_RDWR)) >= 0);
    put(fd, "program", 0);
    CHECK(fsync(fd) == 0 && listxattr(path, NULL, 0) > 0);
    put(fd, "P", 0); /* perhaps without a session */
    CHECK(ftruncate(fd, 6) == 0); /* this needs one, whose journal has no place */
    FAILS(getxattr(path, "user.famio", NULL, 0), ENODATA);
    CHECK(size_of(fd) == 6 && close(fd) == 0 && listxattr(path, NULL, 0) == 0);
  } else if (strcmp(what, "set-user-id, then setuid") == 0) {
    put(fd, "program", 0);
    CHECK(fchmod(fd, 04755) == 0);
    CHECK(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(mode_of(fd) == 04755);
  } else if (strcmp(what, "set-user-id, while it grows") == 0) {
    CHECK(close(fd) == 0 && unlink(path) == 0);
    become_nobody();
    CHECK((fd = open(path, O_RDWR | O_CREAT, 0644)) >= 0);
    put(fd, "program", 0);
    CHECK(fchmod(fd, 04755) == 0);
    FAILS(chroot("."), EPERM); /* it gets a session before */
    CHECK(mode_of(fd) == 04755);
    put(fd, "P", 0);
    CHECK(mode_of(fd) == 0755);
  } else if (strcmp(what, "set-user-id, and a direct write that fails") == 0) {
    CHECK(close(fd) == 0 && unlink(path) == 0);
    become_nobody();
    CHECK((fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0644)) >= 0);
    CHECK(fchmod(fd, 04755) == 0);
    FAILS(pwrite(fd, "unaligned", 9, 0), EINVAL);
    CHECK(mode_of(fd) == 0755);
  } else if (strcmp(what, "set-group-id, and what travels") == 0) {
    CHECK(fchown(fd, NOBODY, NOBODY) == 0);
    become_nobody();
    put(fd, "program", 0);
    look_in_child(fd);
    CHECK(fchmod(fd, 02755) == 0);
    CHECK(fsync(fd) == 0 && mode_of(fd) == 02755);
    CHECK(close(fd) == 0);
    fd = open(path, O_RDWR);
    CHECK(mode_of(fd) == 02755);
    put(fd, "P", 0);
    CHECK(mode_of(fd) == 0755);
  } else if (strcmp(what, "set-group-id, and a change of hands") == 0) {
    CHECK(fchown(fd, NOBODY, NOBODY) == 0);
    become_nobody();
    put(fd, "program", 0);
    CHECK(fsync(fd) == 0 && fchmod(fd, 02755) == 0);
    look_in_child(fd);
    CHECK(mode_of(fd) == 02755);
    put(fd, "P", 0);
    CHECK(fchmod(fd, 02755) == 0);
    look_in_child(fd); /* with uncommitted data */
    CHECK(close(fd) == 0 && (fd = open(path, O_RDONLY)) >= 0 && mode_of(fd) == 02755);
  } else if (strcmp(what, "set-group-id, and the session a child's") == 0) {
    CHECK(close(fd) == 0 && unlink(path) == 0);
    become_nobody();
    CHECK((fd = open(path, O_RDWR | O_CREAT, 0755)) >= 0);
    put(fd, "program", 0);
    CHECK(fsync(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
      put(fd, "P", 0);
      CHECK(fsync(fd) == 0);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(fchmod(fd, 02755) == 0 && mode_of(fd) == 02755);
    put(fd, "r", 1);
    CHECK(mode_of(fd) == 0755);
  } else if (strcmp(what, "sync what travels as another") == 0) {
    put(fd, "program", 0);
    look_in_child(fd);
    CHECK(seteuid(NOBODY) == 0);
    CHECK(fsync(fd) == 0);
    CHECK(seteuid(0) == 0);
  } else if (strcmp(what, "close as another") == 0) {
    put(fd, "program", 0);
    CHECK(seteuid(NOBODY) == 0);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    CHECK(seteuid(0) == 0);
  } else if (strcmp(what, "close as another, and come back") == 0) {
    put(fd, "program", 0);
    CHECK(seteuid(NOBODY) == 0);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    /* Another unprivileged user has no more rights; trying does no harm. */
    CHECK(seteuid(0) == 0 && seteuid(NOBODY) == 0 && seteuid(0) == 0);
    /* Now, not at the end: from here on the name is another file's. */
    CHECK(opendir(".famio") == NULL);
    CHECK(unlink(path) == 0 && (fd = creat(path, 0644)) >= 0 && write(fd, "other", 5) == 5);
    CHECK(close(fd) == 0);
  } else if (strcmp(what, "close as another, and exec") == 0) {
    put(fd, "program", 0);
    CHECK(seteuid(NOBODY) == 0);
    CHECK(fsync(fd) == 0 && close(fd) == 0);
    CHECK(seteuid(0) == 0);
    execl("/bin/true", "true", (char *)NULL);
    CHECK(!"exec");
  } else if (strcmp(what, "a lease, and another user") == 0) {
    char block[4096] = "";
    int users[] = {0, NOBODY, 0};
    for (int i = 0; i < 3; i++) {
      CHECK(i == 0 || seteuid(users[i]) == 0);
      CHECK(inlined(SYS_fcntl, fd, F_GETLEASE, 0, 0) == F_UNLCK);
      for (int n = 0; n < 300 || (i == 0 && inlined(SYS_fcntl, fd, F_GETLEASE, 0, 0) != F_WRLCK); n++) {
        CHECK(pwrite(fd, block, 4096, 0) == 4096 && fsync(fd) == 0);
        sched_yield();
      }
    }
  } else if (strstr(what, "in a child") != NULL) {
    child_gives_up(fd, what);
  } else if (strcmp(what, "append, demoted") == 0) {
    FILE *stream = fdopen(open(path, O_RDWR | O_APPEND), "r+");
    CHECK(stream != NULL && fwrite("stream", 1, 6, stream) == 6 && fflush(stream) == 0);
    /* As in the kernel: at the end, whatever the offset. */
    put(fileno(stream), "!", 0);
    CHECK(has(path, "stream!"));
  } else if (strcmp(what, "limit, demoted") == 0) {
    struct rlimit low = {20, 20};
    int appends = open(path, O_RDWR | O_APPEND);
    CHECK(close(fd) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    put(appends, "end", 0);
    CHECK(fsync(appends) == 0);
    /* Checkpoints an atomic file; this one is demoted, and must stay so. */
    CHECK(link(path, "other") == 0 && unlink("other") == 0);
    int again = open(path, O_RDWR);
    char all[4] = "";
    put(again, "E", 0);
    CHECK(pread(appends, all, 3, 0) == 3 && strcmp(all, "End") == 0);
    put(appends, "!", 0);
    CHECK(has(path, "End!"));
  } else if (strcmp(what, "modes") == 0) {
    CHECK(fchmod(fd, 0666) == 0);
    put(fd, "modes", 0);
    CHECK(fsync(fd) == 0);
    ours_is_no_more_open_than(0666);
    CHECK(fchmod(fd, 0640) == 0);
    ours_is_no_more_open_than(0640);
    CHECK(chmod(path, 0600) == 0);
    ours_is_no_more_open_than(0600);
    put(fd, "MODES", 0);
    CHECK(fsync(fd) == 0);
    ours_is_no_more_open_than(0600);
  } else if (strcmp(what, "modes in another root") == 0) {
    CHECK(fchmod(fd, 0666) == 0);
    put(fd, "modes", 0);
    CHECK(fsync(fd) == 0 && chroot(".") == 0 && fchmod(fd, 0600) == 0);
    ours_is_no_more_open_than(0600);
    raise(SIGKILL);
  } else if (strcmp(what, "a member, until the file is its owner's alone") == 0) {
    gid_t group = 2345;
    CHECK(fchown(fd, USER, group) == 0 && fchmod(fd, 0664) == 0);
    CHECK(setgroups(1, &group) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    put(fd, "program", 0);
    CHECK(fsync(fd) == 0);
    put(fd, "P", 0);
    CHECK(fsync(fd) == 0);
    puts("written"); /* and another program, without Famio, does chmod 644 */
    CHECK(fflush(stdout) == 0 && getchar() == EOF && close(fd) == 0);
  } else if (strncmp(what, "a journal as another user", 25) == 0) {
    CHECK(fchmod(fd, strstr(what, "everybody's") ? 0666 : 0644) == 0);
    become_nobody();
    put(fd, "first..", 0);
    CHECK(fsync(fd) == 0);
    put(fd, "program", 0);
    CHECK(fsync(fd) == 0);
    raise(SIGKILL);
  } else if (strcmp(what, "direct, unaligned") == 0) {
    static char bytes[8192] __attribute__((aligned(4096)));
    int direct = open(path, O_RDWR | O_DIRECT);
    CHECK(direct >= 0);
    CHECK(pwrite(direct, bytes, 4096, 0) == 4096);
    FAILS(pwrite(direct, bytes, 100, 0), EINVAL);
    FAILS(pwrite(direct, bytes, 4096, 100), EINVAL);
    struct rlimit low = {4096, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    FAILS(pwrite(direct, bytes, 100, 4196), EFBIG);
    low.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    FAILS(pwrite(direct, bytes + 1, 4096, 0), EINVAL);
  } else {
    CHECK(!"known");
  }
  return 0;
}
