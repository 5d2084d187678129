/* Streams on a file: what C promises, with libc's buffer. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

static const char *path;

static char *content(void) {
  static char text[1 << 20];
  int fd = open(path, O_RDONLY);
  assert(fd >= 0);
  ssize_t n = read(fd, text, sizeof text - 1);
  assert(n >= 0);
  text[n] = 0;
  close(fd);
  return text;
}

static void modes(void) {
  errno = 0;
  assert(!fopen(path, "r") && errno == ENOENT);
  assert(!fopen(path, "q") && errno == EINVAL);
  FILE *f = fopen(path, "w");
  assert(f && fileno(f) >= 0 && fileno_unlocked(f) == fileno(f));
  assert(fputs("one\ntwo\n", f) >= 0 && fprintf(f, "%d\n", 3) == 2);
  assert(fgetc(f) == EOF && ferror(f)); /* not open for reading */
  assert(ftell(f) == 10 && fclose(f) == 0);
  assert(!strcmp(content(), "one\ntwo\n3\n"));

  errno = 0;
  assert(!fopen(path, "wx") && errno == EEXIST);
  f = fopen(path, "a");
  assert(f && ftell(f) == 10);
  assert(fputs("four\n", f) >= 0 && fseek(f, 0, SEEK_SET) == 0 && fputs("five\n", f) >= 0 && fclose(f) == 0);
  assert(!strcmp(content(), "one\ntwo\n3\nfour\nfive\n"));

  f = fopen(path, "r+e");
  char line[64];
  assert(f && (fcntl(fileno(f), F_GETFD) & FD_CLOEXEC));
  assert(fgets(line, sizeof line, f) && !strcmp(line, "one\n"));
  long at = ftell(f);
  assert(at == 4 && fseek(f, at, SEEK_SET) == 0 && fputs("TWO", f) >= 0 && fflush(f) == 0);
  assert(fgets(line, sizeof line, f) && !strcmp(line, "\n") && fgets(line, sizeof line, f) && !strcmp(line, "3\n"));
  assert(ungetc('x', f) == 'x' && fgetc(f) == 'x');
  rewind(f);
  assert(fread(line, 1, 8, f) == 8 && !memcmp(line, "one\nTWO\n", 8));
  assert(fseek(f, -5, SEEK_END) == 0 && fgets(line, sizeof line, f) && !strcmp(line, "five\n"));
  assert(!feof(f) && fgetc(f) == EOF && feof(f) && fclose(f) == 0);

  f = fopen(path, "r");
  assert(f && fputc('x', f) == EOF && ferror(f) && fclose(f) == 0);
  f = fopen(path, "a+");
  assert(f && fgets(line, sizeof line, f) && !strcmp(line, "one\n") && fclose(f) == 0);
}

static void descriptors(void) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  errno = 0;
  FILE *f = fdopen(fd, "w+");
  assert(f && fileno(f) == fd && fputs("by stream", f) >= 0);
  assert(fflush(f) == 0 && fsync(fileno(f)) == 0);
  struct stat s;
  assert(fstat(fd, &s) == 0 && s.st_size == 9);
  char text[16] = {0};
  assert(pread(fd, text, 9, 0) == 9 && !strcmp(text, "by stream"));
  assert(fclose(f) == 0 && fcntl(fd, F_GETFD) == -1 && errno == EBADF);

  fd = open(path, O_RDONLY);
  assert(!fdopen(fd, "w") && errno == EINVAL);
  f = fdopen(fd, "r");
  assert(f && fgetc(f) == 'b' && fclose(f) == 0);
  assert(!fdopen(fd, "r") && errno == EBADF);

  fd = open(path, O_RDWR);
  f = fdopen(fd, "a");
  assert(f && (fcntl(fd, F_GETFL) & O_APPEND) && fputs("!", f) >= 0 && fclose(f) == 0);
  assert(!strcmp(content(), "by stream!"));

  /* One that appends already stays where it is. */
  fd = open(path, O_RDWR | O_APPEND);
  f = fdopen(fd, "a");
  assert(f && lseek(fd, 0, SEEK_CUR) == 0 && ftell(f) == 0 && fputs("?", f) >= 0 && fclose(f) == 0);
  assert(!strcmp(content(), "by stream!?"));
}

static void buffers(void) {
  FILE *f = fopen(path, "w");
  assert(setvbuf(f, NULL, _IONBF, 0) == 0 && fputs("at once", f) >= 0);
  assert(!strcmp(content(), "at once"));
  fclose(f);
  f = fopen(path, "w");
  assert(setvbuf(f, NULL, _IOLBF, 100) == 0 && fputs("line\nrest", f) >= 0);
  assert(!strcmp(content(), "line\n"));
  assert(fflush(NULL) == 0 && !strcmp(content(), "line\nrest") && fclose(f) == 0);

  /* Larger than any buffer, in odd pieces. */
  static char big[300000];
  for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 + i / 251);
  f = fopen(path, "w+");
  for (size_t at = 0, n = 1; at < sizeof big; at += n, n = n * 3 % 10007 + 1) {
    if (n > sizeof big - at) n = sizeof big - at;
    assert(fwrite(big + at, 1, n, f) == n);
  }
  static char back[sizeof big];
  assert(fseeko(f, 0, SEEK_SET) == 0 && fread(back, 1, sizeof back, f) == sizeof back && !memcmp(big, back, sizeof big));
  for (int i = 0; i < 500; i++) {
    long at = (long)i * 7919 % (long)sizeof big;
    assert(fseek(f, at, SEEK_SET) == 0 && fgetc(f) == (unsigned char)big[at]);
    if (i % 5 == 0) {
      assert(fseek(f, at, SEEK_SET) == 0 && fputc(i, f) == (i & 255));
      big[at] = (char)i;
    }
  }
  assert(fclose(f) == 0);
  f = fopen(path, "r");
  assert(fread(back, sizeof back, 1, f) == 1 && !memcmp(big, back, sizeof big) && fclose(f) == 0);
}

struct record {
  int number, updates;
  char rest[92];
};
enum { RECORDS = 100 };

/* The kinds of seek back to a record that was read, and of seek after it was written. */
static void back(FILE *f, int how, fpos_t *at, long offset) {
  if (how % 4 == 0) assert(fseek(f, offset, SEEK_SET) == 0);
  if (how % 4 == 1) assert(fsetpos(f, at) == 0);
  if (how % 4 == 2) assert(fseeko(f, -(off_t)sizeof(struct record), SEEK_CUR) == 0);
  if (how % 4 == 3) {
    rewind(f);
    assert(fseek(f, offset, SEEK_CUR) == 0);
  }
}
static void onward(FILE *f, int how, long offset) {
  fpos_t here;
  if (how / 4 == 0) assert(fseek(f, 0, SEEK_CUR) == 0);
  if (how / 4 == 1) assert(fseeko(f, 0, SEEK_CUR) == 0);
  if (how / 4 == 2) assert(fgetpos(f, &here) == 0 && fsetpos(f, &here) == 0);
  if (how / 4 == 3) assert(fseek(f, offset + (long)sizeof(struct record), SEEK_SET) == 0);
  if (how / 4 == 4) assert(fflush(f) == 0);
}

/* Reads each record, goes back, writes it, and goes on to the next. */
static void records(void) {
  for (int how = 0; how < 20; how++) {
    struct record r;
    memset(&r, '.', sizeof r);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < RECORDS; i++) {
      r.number = i;
      r.updates = 0;
      assert(fwrite(&r, sizeof r, 1, f) == 1);
    }
    assert(fclose(f) == 0);

    f = fopen(path, "r+");
    int seen = 0;
    for (;;) {
      fpos_t at;
      long offset = ftell(f);
      assert(fgetpos(f, &at) == 0);
      if (fread(&r, sizeof r, 1, f) != 1) break;
      assert(seen < RECORDS && offset == seen * (long)sizeof r && r.number == seen && r.updates == 0);
      seen++;
      r.updates++;
      back(f, how, &at, offset);
      assert(fwrite(&r, sizeof r, 1, f) == 1);
      onward(f, how, offset);
    }
    assert(seen == RECORDS && fclose(f) == 0);

    f = fopen(path, "r");
    for (int i = 0; i < RECORDS; i++) assert(fread(&r, sizeof r, 1, f) == 1 && r.number == i && r.updates == 1);
    assert(fgetc(f) == EOF && fclose(f) == 0);
  }
}

static void again(void) {
  FILE *f = fopen(path, "w");
  fputs("first", f);
  char other[100];
  snprintf(other, sizeof other, "%s-other", path);
  int fd = fileno(f);
  FILE *g = freopen(other, "w", f);
  assert(g == f && fileno(g) == fd && fputs("second", g) >= 0 && fclose(g) == 0);
  assert(!strcmp(content(), "first"));
  const char *first = path;
  path = other;
  assert(!strcmp(content(), "second") && unlink(other) == 0);
  path = first;

  char template[100];
  snprintf(template, sizeof template, "%s-XXXXXX", path);
  fd = mkstemp(template);
  assert(fd >= 0);
  f = fdopen(fd, "w+");
  assert(f && fputs("temporary", f) >= 0 && fclose(f) == 0);
  path = template;
  assert(!strcmp(content(), "temporary") && unlink(template) == 0);
  path = first;

  size_t size = 0;
  char *line = NULL;
  f = fopen(path, "w+");
  for (int i = 0; i < 1000; i++) fprintf(f, "line %d\n", i);
  rewind(f);
  int a;
  assert(fscanf(f, "line %d\n", &a) == 1 && a == 0);
  for (int i = 1; i < 1000; i++) assert(getline(&line, &size, f) > 0 && atoi(line + 5) == i);
  free(line);
  assert(fclose(f) == 0);
}

/* Atomic files only: wide characters are an error, not a crash. */
static void wide(void) {
  FILE *f = fopen(path, "w+");
  assert(f && fputs("12 narrow\n", f) >= 0 && fwide(f, 1) <= 0);
  assert(fputws(L"wide", f) < 0 && fputwc(L'x', f) == WEOF && putwc_unlocked(L'x', f) == WEOF);
  rewind(f);
  wchar_t text[16];
  int number = 0;
  assert(fgetwc(f) == WEOF && getwc_unlocked(f) == WEOF && !fgetws(text, 16, f) && !fgetws_unlocked(text, 16, f));
  assert(ungetwc(L'x', f) == WEOF && fwscanf(f, L"%d", &number) != 1);
  char line[16];
  rewind(f);
  assert(fgets(line, sizeof line, f) && !strcmp(line, "12 narrow\n") && fclose(f) == 0);
  assert(!strcmp(content(), "12 narrow\n"));
}

/* Atomic files only: a stream cannot begin or cease to append. */
static void appending(const char *before, const char *after) {
  FILE *f = fopen(path, before);
  assert(f && fileno(f) >= 0);
  int fd = fileno(f);
  errno = 0;
  assert(!freopen(path, after, f) && errno == EOPNOTSUPP && fcntl(fd, F_GETFD) == -1);
}

int main(int count, char **arguments) {
  assert(count >= 2);
  path = arguments[1];
  if (count == 3 && !strcmp(arguments[2], "own")) {
    wide();
    appending("a", "w");
    appending("a+", "w+");
    appending("w", "a");
    return 0;
  }
  if (count == 3 && !strcmp(arguments[2], "end")) {
    FILE *f = fopen(path, "a");
    assert(f && ftell(f) == 6 && fputs("more\n", f) >= 0 && ftell(f) == 11 && fclose(f) == 0);
    return 0;
  }
  if (count == 3 && !strcmp(arguments[2], "records")) {
    records();
    return 0;
  }
  if (count == 2) {
    modes();
    descriptors();
    buffers();
    again();
    return 0;
  }
  FILE *f = fopen(path, "w");
  fputs("synced\n", f);
  fflush(f);
  fsync(fileno(f));
  fputs("left in the buffer\n", f);
  if (!strcmp(arguments[2], "kill")) {
    fflush(f);
    raise(9);
  }
  return 0; /* exit flushes it */
}
