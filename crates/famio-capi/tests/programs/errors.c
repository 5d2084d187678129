/* Every error that the man pages of libfamio's calls name, in a temporary folder: the errno, and a message if one
 * is promised. */
#define _GNU_SOURCE
#include <famio.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static int failed;

/* `call` must fail with that errno. */
#define FAILS(call, error)                                                                                            \
  do {                                                                                                                \
    errno = 0;                                                                                                        \
    long result_ = (long)(intptr_t)(call);                                                                            \
    int errno_ = errno;                                                                                               \
    if ((result_ != -1 && result_ != 0) || errno_ != (error) || (result_ == 0 && !is_null_call(#call))) {             \
      printf("line %d: %s: %ld, %s instead of %s\n", __LINE__, #call, result_, strerror(errno_), strerror(error));    \
      failed = 1;                                                                                                     \
    }                                                                                                                 \
  } while (0)

/* `call` must succeed, and leave errno unchanged. */
#define WORKS(call)                                                                                                   \
  do {                                                                                                                \
    errno = 77;                                                                                                       \
    long result_ = (long)(intptr_t)(call);                                                                            \
    if (result_ == -1 || (result_ == 0 && is_null_call(#call)) || errno != 77) {                                      \
      printf("line %d: %s: %ld, %s: %s\n", __LINE__, #call, result_, strerror(errno), nverrmsg());                    \
      failed = 1;                                                                                                     \
    }                                                                                                                 \
  } while (0)

#define SAYS(text)                                                                                                    \
  do {                                                                                                                \
    if (!strstr(nverrmsg(), text)) {                                                                                  \
      printf("line %d: \"%s\" instead of \"%s\"\n", __LINE__, nverrmsg(), text);                                      \
      failed = 1;                                                                                                     \
    }                                                                                                                 \
  } while (0)

/* Calls that return an address, and null for an error. */
static int is_null_call(const char *call) { return !strncmp(call, "nvmem", 5) || !strncmp(call, "nvstr", 5); }

static void *const bad = (void *)8;

static void opening(void) {
  FAILS(nvopen("none", O_RDWR), ENOENT);
  FAILS(nvopen("none/file", O_RDWR | O_CREAT, 0644), ENOENT);
  FAILS(nvopen(bad, O_RDWR), EFAULT);
  FAILS(nvopen(".", O_RDWR), EINVAL);
  SAYS("not a regular file");
  FAILS(nvopen("pipe", O_RDWR), EINVAL);
  FAILS(nvopen("file", O_PATH), EINVAL);
  FAILS(nvopen("file", O_RDONLY | O_DIRECTORY), EINVAL);
  SAYS("read or written");
  FAILS(nvopen("file", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
  FAILS(nvopen("link", O_RDWR | O_NOFOLLOW), ELOOP);
  /* The first write reports the file system. */
  int other = nvopen("/proc/self/comm", O_RDWR);
  FAILS(nvpwrite(other, "x", 1, 0), EOPNOTSUPP);
  WORKS(nvclose(other));
  FAILS(nvopenat(-7, "file", O_RDWR), EBADF);
  FAILS(nvopenat(AT_FDCWD, "none", O_RDWR), ENOENT);
  struct rlimit old, none;
  getrlimit(RLIMIT_NOFILE, &old);
  none = old;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  FAILS(nvopen("file", O_RDWR), EMFILE);
  setrlimit(RLIMIT_NOFILE, &old);
  WORKS(nvclose(nvopen("file", O_RDWR)));
  WORKS(nvclose(nvopen("link", O_RDWR)));
}

static void reading_and_writing(void) {
  char bytes[64] = "bytes";
  struct iovec good = {bytes, sizeof bytes}, none = {bad, 10};
  int fd = nvopen("file", O_RDWR), reader = nvopen("file", O_RDONLY), writer = nvopen("file", O_WRONLY);
  WORKS(nvpwrite(fd, bytes, sizeof bytes, 0));
  for (int round = 0; round < 2; round++) {
    /* The second time, the file is attached. */
    FAILS(nvread(-1, bytes, 1), EBADF);
    FAILS(nvread(writer, bytes, 1), EBADF);
    FAILS(nvread(fd, bad, 10), EFAULT);
    FAILS(nvwrite(-1, bytes, 1), EBADF);
    FAILS(nvwrite(reader, bytes, 1), EBADF);
    FAILS(nvwrite(fd, bad, 10), EFAULT);
    FAILS(nvpread(writer, bytes, 1, 0), EBADF);
    FAILS(nvpread(fd, bytes, 1, -1), EINVAL);
    FAILS(nvpread(fd, bad, 10, 0), EFAULT);
    FAILS(nvpwrite(reader, bytes, 1, 0), EBADF);
    FAILS(nvpwrite(fd, bytes, 1, -1), EINVAL);
    FAILS(nvpwrite(fd, bad, 10, 0), EFAULT);
    FAILS(nvreadv(writer, &good, 1), EBADF);
    FAILS(nvreadv(fd, &good, -1), EINVAL);
    FAILS(nvreadv(fd, &none, 1), EFAULT);
    FAILS(nvwritev(reader, &good, 1), EBADF);
    FAILS(nvwritev(fd, &good, 1025), EINVAL);
    FAILS(nvwritev(fd, bad, 1), EFAULT);
    FAILS(nvpreadv(fd, &good, 1, -1), EINVAL);
    FAILS(nvpreadv(-1, &good, 1, 0), EBADF);
    FAILS(nvpreadv(fd, &none, 1, 0), EFAULT);
    FAILS(nvpwritev(fd, &good, 1, -1), EINVAL);
    FAILS(nvpwritev(reader, &good, 1, 0), EBADF);
    FAILS(nvpwritev(fd, &none, 1, 0), EFAULT);
    FAILS(nvlseek(-1, 0, SEEK_SET), EBADF);
    FAILS(nvlseek(fd, 0, 99), EINVAL);
    FAILS(nvlseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(nvlseek(fd, 1 << 30, SEEK_DATA), ENXIO);
    FAILS(nvftruncate(-1, 0), EBADF);
    FAILS(nvftruncate(fd, -1), EINVAL);
    FAILS(nvftruncate(reader, 0), EINVAL);
    FAILS(nvfsync(-1), EBADF);
    FAILS(nvfdatasync(-1), EBADF);
    FAILS(nvfstat(-1, (struct stat *)bytes), EBADF);
    FAILS(nvfstat(fd, bad), EFAULT);
    struct nvcounters counters;
    FAILS(nvcounters(-1, &counters, sizeof counters), EBADF);
    FAILS(nvcounters(0, &counters, sizeof counters), EBADF);
    FAILS(nvclose(-1), EBADF);
    WORKS(nvcounters(fd, &counters, sizeof counters));
    if (counters.size != 8 * PAGE || counters.attached != 1) printf("counters: %d\n", failed = 1);
    memset(&counters, 1, sizeof counters);
    WORKS(nvcounters(fd, &counters, 8));
    if (counters.size != 8 * PAGE || counters.attached != 0x01010101) printf("counters: %d\n", failed = 1);
    WORKS(nvfsync(fd));
  }
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 100000;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  /* The interposer sees setrlimit; otherwise the library reads the limit at its first call. */
  if (getenv("INTERPOSED")) {
    FAILS(nvpwrite(fd, bytes, 1, 100000), EFBIG);
    FAILS(nvftruncate(fd, 100001), EFBIG);
  }
  setrlimit(RLIMIT_FSIZE, &old);
  FAILS(nvpwrite(fd, bytes, 1, INT64_MAX - 1), EFBIG);
  FAILS(nvftruncate(fd, INT64_MAX), EFBIG);
  WORKS(nvclose(fd));
  WORKS(nvclose(reader));
  WORKS(nvclose(writer));
}

static void mapping(void) {
  int fd = nvopen("file", O_RDWR), reader = nvopen("file", O_RDONLY);
  int both = PROT_READ | PROT_WRITE;
  FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED, -1, 0), EBADF);
  FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED, reader, 0), EACCES);
  FAILS(nvmmap(NULL, 0, both, MAP_SHARED, fd, 0), EINVAL);
  FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED, fd, 100), EINVAL);
  FAILS(nvmmap(NULL, PAGE, both, MAP_PRIVATE | NVMAP_COPIES, fd, 0), EINVAL);
  FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0), EOPNOTSUPP);
  FAILS(nvmmap(NULL, SIZE_MAX / 2 + PAGE, both, MAP_SHARED, fd, 0), ENOMEM);
  FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED, fd, -PAGE), EOVERFLOW);

  char *map = nvmmap(NULL, 8 * PAGE, both, MAP_SHARED, fd, 0);
  char *shown = nvmmap(NULL, 8 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
  char bytes[64] = "bytes";
  if (map == MAP_FAILED || shown == MAP_FAILED) exit(printf("no maps: %s\n", nverrmsg()));
  WORKS(nvftruncate(fd, 7 * PAGE + 10));
  WORKS(nvmemcpy(map + 7 * PAGE, bytes, 10));
  FAILS(nvmemcpy(map + 7 * PAGE, bytes, 11), ENXIO);
  SAYS("beyond the end of its file");
  FAILS(nvmemcpy(bytes, map + 7 * PAGE, 11), ENXIO);
  FAILS(nvmemcpy(bytes, shown + 7 * PAGE, 11), ENXIO);
  FAILS(nvmemcpy(shown, bytes, 1), EACCES);
  SAYS("made for reading");
  FAILS(nvmemmove(map + 7 * PAGE + 5, map + 7 * PAGE, 10), ENXIO);
  FAILS(nvmemmove(shown, map, 10), EACCES);
  FAILS(nvmemset(map + 7 * PAGE, 'x', 11), ENXIO);
  FAILS(nvmemset(shown, 'x', 1), EACCES);
  WORKS(nvmemset(map + 7 * PAGE, 'x', 10));
  FAILS(nvstrcpy(bytes, map + 7 * PAGE), ENXIO);
  FAILS(nvstrcpy(map + 7 * PAGE + 5, "bytes"), ENXIO);
  FAILS(nvstrcpy(shown, "bytes"), EACCES);
  WORKS(nvstrcpy(map + 7 * PAGE + 4, "bytes"));
  WORKS(nvmemcpy(map, bytes, 0));
  /* Memory outside any map. */
  WORKS(nvmemcpy(bytes + 32, bytes, 6));
  WORKS(nvstrcpy(bytes, "other"));

  FAILS(nvmsync(map, PAGE, 99), EINVAL);
  FAILS(nvmsync(map + 1, PAGE, MS_SYNC), EINVAL);
  FAILS(nvmsync(bad, PAGE, MS_SYNC), EINVAL);
  FAILS(nvmsync((void *)PAGE, PAGE, MS_SYNC), ENOMEM);
  FAILS(nvmremap(map + 1, PAGE, PAGE, 0), EINVAL);
  FAILS(nvmremap(map, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
  FAILS(nvmremap((void *)PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
  FAILS(nvmunmap(map + 1, PAGE), EINVAL);
  FAILS(nvmunmap(map, 0), EINVAL);
  FAILS(nvadvise(map, PAGE, 99), EINVAL);
  FAILS(nvadvise(map + 1, PAGE, NVADV_NORMAL), EINVAL);
  FAILS(nvadvise((void *)PAGE, PAGE, NVADV_NORMAL), ENOMEM);
  for (int advice = NVADV_NORMAL; advice <= NVADV_DONTNEED; advice++) {
    WORKS(nvadvise(map, 8 * PAGE, advice));
    WORKS(nvadvise(shown, 8 * PAGE, advice));
  }
  WORKS(nvmsync(map, 8 * PAGE, MS_SYNC));
  char *moved = nvmremap(map, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED || memcmp(moved + 7 * PAGE + 4, "bytes", 6)) printf("nvmremap: %d\n", failed = 1);
  WORKS(nvmunmap(moved, 64 * PAGE));
  WORKS(nvmunmap(shown, 8 * PAGE));

  /* A file larger than the memory: mapped once, by private pages; refused by kernels that cannot do that, and still
   * atomic. */
  struct sysinfo machine;
  sysinfo(&machine);
  int large = nvopen("large", O_RDWR | O_CREAT, 0644);
  WORKS(nvftruncate(large, (off_t)(machine.totalram / 2 * machine.mem_unit)));
  char *mapped = nvmmap(NULL, PAGE, both, MAP_SHARED, large, 0);
  if (mapped == MAP_FAILED) FAILS(nvmmap(NULL, PAGE, both, MAP_SHARED, large, 0), ENOMEM);
  else FAILS(nvmmap(NULL, 2 * PAGE, both, MAP_SHARED, large, 0), ENOMEM);
  SAYS("quarter of this machine's memory");
  struct nvcounters counters;
  WORKS(nvcounters(large, &counters, sizeof counters));
  if (!counters.attached) printf("large: %d\n", failed = 1);
  if (mapped != MAP_FAILED) WORKS(nvmunmap(mapped, PAGE));
  WORKS(nvclose(large));
  unlink("large");
  WORKS(nvclose(fd));
  WORKS(nvclose(reader));
}

/* In a forked child, without space in /dev/shm for a map that both share: the parent's mapped files stay the
 * parent's. */
static void without_room(void) {
  int fd = nvopen("file", O_RDWR);
  char bytes[16] = "bytes";
  char *map = nvmmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  WORKS(nvpwrite(fd, bytes, sizeof bytes, 0));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    FAILS(nvread(fd, bytes, 1), EBUSY);
    FAILS(nvwrite(fd, bytes, 1), EBUSY);
    FAILS(nvpread(fd, bytes, 1, 0), EBUSY);
    FAILS(nvpwrite(fd, bytes, 1, 0), EBUSY);
    FAILS(nvfsync(fd), EBUSY);
    FAILS(nvfdatasync(fd), EBUSY);
    WORKS(nvlseek(fd, 0, SEEK_SET));
    FAILS(nvftruncate(fd, 0), EBUSY);
    FAILS(nvmmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0), EBUSY);
    FAILS(nvmsync(map, PAGE, MS_SYNC), EBUSY);
    struct nvcounters counters;
    WORKS(nvcounters(fd, &counters, sizeof counters));
    /* A file that the parent has mapped: it cannot be handed over. */
    int own = nvopen("file", O_RDWR);
    FAILS(nvpwrite(own, bytes, 1, 0), EBUSY);
    FAILS(nvopen("file", O_RDWR | O_TRUNC), EBUSY);
    FAILS(nvrecover("file", 0), EBUSY);
    fflush(stdout);
    _exit(failed);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (status) printf("the child: %d\n", failed = 1);
  WORKS(nvmunmap(map, PAGE));
  WORKS(nvclose(fd));
}

/* In a forked child: the parent's descriptors, and their positions, are shared. */
static void forked(void) {
  int fd = nvopen("file", O_RDWR), status = 1;
  char bytes[16] = "bytes";
  char *map = nvmmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  WORKS(nvpwrite(fd, bytes, sizeof bytes, 0));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    WORKS(nvpwrite(fd, "map", 3, 0));
    FAILS(nvmsync(map, PAGE, MS_SYNC), EBUSY);
    fflush(stdout);
    _exit(failed || memcmp(map, "mapes", 5));
  }
  waitpid(child, &status, 0);
  if (status || memcmp(map, "mapes", 5)) printf("what a child wrote, in the map: %d %.5s\n", failed = 1, map);
  WORKS(nvmunmap(map, PAGE));
  WORKS(nvlseek(fd, 0, SEEK_SET));
  fflush(stdout);
  child = fork();
  if (!child) {
    WORKS(nvwrite(fd, "child", 5));
    WORKS(nvfsync(fd));
    fflush(stdout);
    _exit(failed);
  }
  waitpid(child, &status, 0);
  if (status || nvlseek(fd, 0, SEEK_CUR) != 5 || nvpread(fd, bytes, 5, 0) != 5 || memcmp(bytes, "child", 5))
    printf("what a child wrote: %d %.5s\n", failed = 1, bytes);
  WORKS(nvclose(fd));
}

static void recovering(void) {
  static char much[100000]; /* fewer bytes might need no journal */
  FAILS(nvrecover("none", 0), ENOENT);
  FAILS(nvrecover(NULL, 0), EFAULT);
  FAILS(nvrecover("file", 64), EINVAL);
  FAILS(nvrecover("file", NVRECOVER_USE_FILE | NVRECOVER_USE_JOURNAL), EINVAL);
  FAILS(nvrecover("pipe", 0), EINVAL);
  errno = 77;
  if (nvrecover("file", 0) || errno != 77) printf("nvrecover: %s\n", nverrmsg()), failed = 1;
  /* A file whose process was killed in the middle of an epoch. */
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    int fd = nvopen("file", O_RDWR);
    nvpwrite(fd, "first", 5, 100);
    nvfsync(fd);
    nvpwrite(fd, much, sizeof much, 0);
    raise(SIGKILL);
  }
  waitpid(child, NULL, 0);
  if (nvrecover("file", NVRECOVER_DRY_RUN) != 1) printf("dry run: %s\n", nverrmsg()), failed = 1;
  if (nvrecover(".", 0) != 1) printf("folder: %s\n", nverrmsg()), failed = 1;
  int plain = open("file", O_RDONLY);
  char bytes[6] = "";
  if (pread(plain, bytes, 5, 100) != 5 || strcmp(bytes, "first")) printf("recovered: %s\n", bytes), failed = 1;
  close(plain);
  /* A file whose journal was damaged since: open reports that, and so does recovery. */
  fflush(stdout);
  child = fork();
  if (!child) {
    int fd = nvopen("file", O_RDWR);
    nvpwrite(fd, much, sizeof much, 0);
    nvfsync(fd);
    raise(SIGKILL);
  }
  waitpid(child, NULL, 0);
  if (system("for j in .famio/*; do : > \"$j\"; done")) printf("no journal\n"), failed = 1;
  FAILS(nvopen("file", O_RDWR), EIO);
  SAYS("file");
  FAILS(nvrecover("file", 0), EIO);
  if (nvrecover("file", NVRECOVER_USE_FILE) < 0) printf("use file: %s\n", nverrmsg()), failed = 1;
  WORKS(nvclose(nvopen("file", O_RDWR)));
}

static void words(void) {
  if (strcmp(nvstrerror(ENOSPC), "No space left on device")) printf("%s\n", nvstrerror(ENOSPC)), failed = 1;
  FAILS(nvopen("none", O_RDWR), ENOENT);
  SAYS("No such file or directory");
}

/* After the library's end. */
static void late(void) {
  if (getenv("INTERPOSED")) return; /* that library was loaded before, and so ends later */
  FAILS(nvopen("file", O_RDWR), ESHUTDOWN);
  SAYS("ending");
  if (failed) fflush(stdout), _exit(1);
}

int main(int argc, char **argv) {
  (void)argv;
  /* Registered before the library's own handler, so it runs after that. */
  atexit(late);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (symlink("file", "link") || mknod("pipe", S_IFIFO | 0600, 0)) return 3;
  int fd = nvopen("file", O_RDWR | O_CREAT, 0644);
  WORKS(nvftruncate(fd, 8 * PAGE));
  WORKS(nvclose(fd));
  if (argc > 1) {
    without_room();
    return failed;
  }
  opening();
  reading_and_writing();
  mapping();
  forked();
  recovering();
  words();
  return failed;
}
