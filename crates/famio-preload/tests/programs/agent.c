/* Executes commands on a file, one per line of stdin, and answers each with a line. */
#include "check.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

int main(void) {
  char line[256], word[16], text[200], other[200];
  int fd = -1, kept = -1, end;
  char *map = NULL;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin)) {
    long at = 0, len = 0;
    char bytes[512] = "";
    errno = 0;
    if (sscanf(line, "%15s", word) != 1) continue;
    if (sscanf(line, "open %199s", text) == 1) {
      if (fd >= 0) close(fd);
      fd = open(text, O_RDWR | O_CREAT, 0600);
      printf("%s\n", fd < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "renew %199s", text) == 1) {
      fd = open(text, O_RDWR | O_TRUNC);
      printf("%s\n", fd < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "look %199s", text) == 1) {
      fd = open(text, O_RDONLY);
      printf("%s\n", fd < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "write %ld %n%199s", &at, &end, text) == 2) {
      long n = pwrite(fd, text, strlen(text), at);
      printf("%s\n", n < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "fill %ld %199s", &len, text) == 2) { /* `len` megabytes of a letter, from the beginning */
      static char megabyte[1 << 20];
      memset(megabyte, *text, sizeof megabyte);
      for (at = 0; at < len && pwrite(fd, megabyte, sizeof megabyte, at << 20) == sizeof megabyte;) at++;
      printf("%s\n", at < len ? strerror(errno) : "ok");
    } else if (sscanf(line, "blocks %ld %199s", &at, text) == 2) { /* a block full of each letter, with a SYNC between them */
      static char block[4096];
      for (len = 0; text[len]; len++) {
        if (len && fsync(fd) < 0) break;
        memset(block, text[len], sizeof block);
        if (pwrite(fd, block, sizeof block, at * 4096) != sizeof block) break;
      }
      printf("%s\n", text[len] ? strerror(errno) : "ok");
    } else if (sscanf(line, "append %199s", text) == 1) {
      fcntl(fd, F_SETFL, O_APPEND);
      long n = write(fd, text, strlen(text));
      fcntl(fd, F_SETFL, 0);
      printf("%s\n", n < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "read %ld %ld", &at, &len) == 2) {
      long n = pread(fd, bytes, (size_t)len, at);
      for (long i = 0; i < n; i++)
        if (!bytes[i]) bytes[i] = '0';
      printf("%s\n", n < 0 ? strerror(errno) : bytes);
    } else if (sscanf(line, "cut %ld", &len) == 1) {
      printf("%s\n", ftruncate(fd, len) < 0 ? strerror(errno) : "ok");
    } else if (!strcmp(word, "size")) {
      struct stat stat;
      fstat(fd, &stat);
      printf("%ld\n", (long)stat.st_size);
    } else if (sscanf(line, "named %199s", text) == 1) { /* its size by its name */
      struct stat named = {.st_size = -1};
      stat(text, &named);
      printf("%ld\n", (long)named.st_size);
    } else if (!strcmp(word, "sync")) {
      printf("%s\n", fsync(fd) < 0 ? strerror(errno) : "ok");
    } else if (!strcmp(word, "lock") || !strcmp(word, "unlock") || !strcmp(word, "share")) {
      int how = *word == 'l' ? LOCK_EX : *word == 'u' ? LOCK_UN : LOCK_SH;
      printf("%s\n", flock(fd, how) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "range %15s %15s %ld %ld", text, other, &at, &len) == 4) {
      short kind = *other == 'w' ? F_WRLCK : *other == 'r' ? F_RDLCK : F_UNLCK;
      struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = len};
      printf("%s\n", fcntl(fd, *text == 'o' ? F_OFD_SETLK : F_SETLK, &lock) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "keep %199s", text) == 1) { /* a second descriptor, to the end */
      kept = open(text, O_RDWR | O_CREAT, 0600);
      printf("%s\n", kept < 0 ? strerror(errno) : "ok");
    } else if (!strcmp(word, "lockkept")) {
      struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
      printf("%s\n", fcntl(kept, F_SETLK, &lock) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "peek %199s", text) == 1) {
      int another = open(text, O_RDONLY);
      printf("%s\n", another < 0 || close(another) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "change %199s", text) == 1) {
      int another = open(text, O_RDWR);
      printf("%s\n", another < 0 || close(fd) < 0 ? strerror(errno) : "ok");
      fd = another;
    } else if (!strcmp(word, "end")) { /* where a read at the position ends, and where the file ends */
      long position = lseek(fd, -4, SEEK_END);
      if (position >= 0 && read(fd, bytes, sizeof bytes) < 0) position = -1;
      printf("%ld %s\n", position + 4, position < 0 ? strerror(errno) : bytes);
    } else if (!strcmp(word, "map")) {
      sscanf(line, "map %ld", &at);
      map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
      printf("%s\n", map == MAP_FAILED ? strerror(errno) : "ok");
    } else if (sscanf(line, "rename %199s %199s", text, other) == 2) {
      printf("%s\n", rename(text, other) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "mapreadat %ld", &at) == 1) {
      map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, at);
      printf("%s\n", map == MAP_FAILED ? strerror(errno) : "ok");
    } else if (!strcmp(word, "protect")) {
      printf("%s\n", mprotect(map, 4096, PROT_READ | PROT_WRITE) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "unlink %199s", text) == 1) {
      printf("%s\n", unlink(text) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "pause %ld", &len) == 1) { /* so many milliseconds */
      printf("%s\n", usleep((useconds_t)len * 1000) < 0 ? strerror(errno) : "ok");
    } else if (sscanf(line, "list %199s", text) == 1) { /* how many names of the library's are in a folder */
      DIR *folder = opendir(text);
      long found = 0;
      for (struct dirent *entry; folder && (entry = readdir(folder));) found += strstr(entry->d_name, "famio") != NULL;
      printf("%ld\n", found);
      if (folder) closedir(folder);
    } else if (sscanf(line, "child %199s", text) == 1) { /* a forked child writes a file */
      pid_t child = fork();
      if (!child) {
        int own = open(text, O_RDWR);
        _exit(own < 0 || pwrite(own, "child", 5, 0) != 5 || fsync(own) < 0 || close(own) < 0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      printf("%s\n", status ? "failed" : "ok");
    } else if (!strcmp(word, "unmap")) {
      printf("%s\n", munmap(map, 4096) < 0 ? strerror(errno) : "ok");
    } else if (!strcmp(word, "mapread")) {
      map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
      printf("%s\n", map == MAP_FAILED ? strerror(errno) : "ok");
    } else if (sscanf(line, "store %ld %n%199s", &at, &end, text) == 2) {
      memcpy(map + at, text, strlen(text));
      printf("ok\n");
    } else if (sscanf(line, "load %ld %ld", &at, &len) == 2) {
      printf("%.*s\n", (int)len, map + at);
    } else if (!strcmp(word, "exec")) {
      execl("/nowhere", "nowhere", NULL);
      printf("%s\n", errno == ENOENT ? "ok" : strerror(errno));
    } else if (!strcmp(word, "stdin")) {
      int saved = dup(0), done = dup2(fd, 0);
      printf("%s\n", done < 0 ? strerror(errno) : "ok");
      dup2(saved, 0);
      close(saved);
    } else if (!strcmp(word, "close")) {
      printf("%s\n", close(fd) < 0 ? strerror(errno) : "ok");
      fd = -1;
    } else {
      printf("what?\n");
    }
  }
  return 0;
}
