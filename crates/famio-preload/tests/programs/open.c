/* The open family: flags that the library emulates, modes, errors. */
#include <pthread.h>

#include "check.h"

static volatile int renames;

static void *rename_on(void *path) {
  for (int i = 0; renames; i++) {
    const char *names[] = {path, "atomic-too"};
    inlined(SYS_renameat, AT_FDCWD, (long)names[i % 2], AT_FDCWD, (long)names[1 - i % 2]);
  }
  return NULL;
}

/* Another thread renames the file meanwhile: if it is opened by a selected name, it is atomic. */
static void open_while_it_is_renamed(const char *path) {
  const int kinds[] = {O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_APPEND};
  pthread_t thread;
  int found = 0;
  CHECK(close(creat(path, 0600)) == 0);
  renames = 1;
  CHECK(pthread_create(&thread, NULL, rename_on, (void *)path) == 0);
  for (int i = 0; found < 3000; i++) {
    int fd = open(i % 2 ? path : "atomic-too", kinds[i / 2 % 4]);
    if (fd < 0) continue;
    found++;
    CHECK(lseek(fd, 7, SEEK_SET) == 7 && kernel_position(fd) == 0 && close(fd) == 0);
  }
  renames = 0;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(access(path, F_OK) == 0 || rename("atomic-too", path) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const char *path = argv[1];
  struct stat st;
  char buffer[64];

  FAILS(open(path, O_RDWR), ENOENT);
  FAILS(open((const char *)8, O_RDWR), EFAULT);
  FAILS(open("", O_RDWR), ENOENT);
  umask(027);
  int fd;
  WORKS(fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0666));
  /* Near the end of a page, where a search for the path's end begins to read before it. */
  FAILS(open((const char *)0x10fff, O_RDWR), EFAULT);
  FAILS(open((const char *)0x10fe1, O_RDWR), EFAULT);
  FAILS(open((const char *)-1, O_RDWR), EFAULT);
  FAILS(open((const char *)-16, O_RDWR), EFAULT);
  CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0640);
  FAILS(open(path, O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
  FAILS(open(path, O_RDWR | O_DIRECTORY), ENOTDIR);
  CHECK(fcntl(fd, F_GETFD) == 0);
  WORKS(write(fd, "hello world", 11));

  /* While it is open: files that are not selected, bad paths, and the same file under a name that is not selected. */
  FAILS(open((const char *)8, O_RDWR), EFAULT);
  FAILS(open("bystander", O_RDWR), ENOENT);
  int other;
  CHECK((other = open("bystander", O_RDWR | O_CREAT, 0600)) >= 0 && write(other, "not", 3) == 3);
  CHECK(kernel_position(other) == 3 && close(other) == 0 && unlink("bystander") == 0);
  CHECK(link(path, "bystander") == 0 && (other = open("bystander", O_RDWR)) >= 0);
  CHECK(read(other, buffer, sizeof buffer) == 11 && memcmp(buffer, "hello world", 11) == 0);
  CHECK(pwrite(other, "H", 1, 0) == 1 && pread(fd, buffer, 2, 0) == 2 && memcmp(buffer, "He", 2) == 0);
  CHECK(close(other) == 0 && unlink("bystander") == 0);
  close(fd);

  /* O_TRUNC, with and without write access. */
  CHECK((fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC)) >= 0);
  CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
  CHECK(write(fd, "abc", 3) == 3);
  other = open(path, O_RDONLY | O_TRUNC);
  CHECK(other >= 0 && fstat(fd, &st) == 0 && st.st_size == 0);
  FAILS(write(other, "x", 1), EBADF);
  CHECK(write(fd, "d", 1) == 1);
  CHECK(read(other, buffer, sizeof buffer) == 4 && memcmp(buffer, "\0\0\0d", 4) == 0);
  close(other);
  close(fd);

  /* O_WRONLY: no reading. */
  CHECK((fd = creat(path, 0600)) >= 0);
  FAILS(read(fd, buffer, 1), EBADF);
  FAILS(pread(fd, buffer, 1, 0), EBADF);
  CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY);
  struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  FAILS(fcntl(fd, F_SETLK, &lock), EBADF);
  lock.l_type = F_WRLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  CHECK(write(fd, "12345", 5) == 5);
  close(fd);

  /* Flags look as if the kernel had opened it; links lead to it; other kinds of files are left to the kernel. */
  const int every[] = {O_RDONLY, O_RDWR, O_RDWR | O_NONBLOCK, O_RDWR | O_APPEND, O_WRONLY, O_RDONLY | O_NOFOLLOW};
  for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
    for (int ours = 0; ours < 2; ours++) {
      const char *name = ours ? path : "bystander";
      CHECK((fd = open(name, every[i] | O_CREAT, 0600)) >= 0 && close(fd) == 0);
      CHECK((fd = open(name, every[i])) >= 0);
      int bare = (int)inlined(SYS_openat, AT_FDCWD, (long)name, every[i], 0);
      CHECK(bare >= 0 && fcntl(fd, F_GETFL) == (int)inlined(SYS_fcntl, bare, F_GETFL, 0, 0));
      CHECK(inlined(SYS_close, bare, 0, 0, 0) == 0 && close(fd) == 0);
    }
  }
  CHECK(unlink("bystander") == 0 && symlink(path, "link") == 0);
  CHECK((fd = open("link", O_RDWR)) >= 0 && write(fd, "54321", 5) == 5 && lseek(fd, 1, SEEK_SET) == 1);
  CHECK(strcmp(path, "atomic") != 0 || kernel_position(fd) == 0);
  CHECK(close(fd) == 0);
  FAILS(open("link", O_RDWR | O_NOFOLLOW), ELOOP);
  CHECK(unlink("link") == 0 && mkfifo("atomic-pipe", 0600) == 0);
  CHECK((fd = open("atomic-pipe", O_RDWR)) >= 0 && write(fd, "pipe", 4) == 4 && read(fd, buffer, 4) == 4);
  CHECK(close(fd) == 0 && unlink("atomic-pipe") == 0);
  FAILS(open("bystander/x", O_RDWR), ENOENT);
  CHECK((fd = creat(path, 0600)) >= 0 && write(fd, "12345", 5) == 5 && close(fd) == 0);

  /* O_APPEND, in two descriptions, and pwrite, which appends, as on Linux. */
  CHECK((fd = open(path, O_RDWR | O_APPEND)) >= 0);
  CHECK((other = open(path, O_WRONLY | O_APPEND)) >= 0);
  CHECK(fcntl(fd, F_GETFL) & O_APPEND);
  CHECK(write(fd, "6", 1) == 1 && write(other, "7", 1) == 1 && write(fd, "8", 1) == 1);
  CHECK(lseek(fd, 0, SEEK_CUR) == 8 && lseek(other, 0, SEEK_CUR) == 7);
  CHECK(pwrite(fd, "9", 1, 0) == 1 && lseek(fd, 0, SEEK_CUR) == 8);
  CHECK(fcntl(fd, F_SETFL, 0) == 0 && !(fcntl(fd, F_GETFL) & O_APPEND));
  CHECK(pwrite(fd, "A", 1, 0) == 1);
  close(fd);
  close(other);
  CHECK(has(path, "A23456789"));

  /* O_SYNC shows, and each write is committed. */
  CHECK((fd = open(path, O_RDWR | O_SYNC)) >= 0);
  CHECK((fcntl(fd, F_GETFL) & O_SYNC) == O_SYNC);
  CHECK(pwrite(fd, "B", 1, 0) == 1);
  close(fd);
  CHECK((fd = open(path, O_RDWR | O_DSYNC)) >= 0);
  CHECK((fcntl(fd, F_GETFL) & O_SYNC) == O_DSYNC);
  close(fd);

  /* openat, links, O_NOFOLLOW. */
  int folder = open(".", O_RDONLY | O_DIRECTORY);
  CHECK((fd = openat(folder, path, O_RDWR)) >= 0);
  CHECK(write(fd, "C", 1) == 1);
  unlink("link");
  CHECK(symlink(path, "link") == 0);
  CHECK((other = openat(folder, "link", O_RDONLY)) >= 0);
  CHECK(read(other, buffer, 1) == 1 && buffer[0] == 'C');
  FAILS(openat(folder, "link", O_RDWR | O_NOFOLLOW), ELOOP);
  CHECK(close(other) == 0 && close(fd) == 0);
  FAILS(close(fd), EBADF);
  unlink("hard");
  CHECK((fd = open(path, O_RDWR)) >= 0 && link(path, "hard") == 0);
  CHECK(write(fd, "D", 1) == 1);
  CHECK((other = open("hard", O_RDONLY)) >= 0);
  CHECK(read(other, buffer, 1) == 1 && buffer[0] == 'D');
  close(other);
  /* The first descriptor sees an O_TRUNC under the other name. */
  CHECK((other = open("hard", O_WRONLY | O_TRUNC)) >= 0);
  CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
  close(other);
  close(fd);
  unlink("hard");
  unlink("link");
  close(folder);
  if (strcmp(path, "atomic") == 0) open_while_it_is_renamed(path);
  return 0;
}
