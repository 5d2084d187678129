/* Random sequences of calls of streams on one file, by a seed. Each result is printed, and what the file has become:
   the output must be that of a plain file. Arguments: path, first seed, last seed, and `loose` for sequences that read
   directly after a write, or write directly after a read, which C does not allow. */
#include "check.h"

enum { LARGEST = 12000, OPERATIONS = 60 };

static uint64_t state;

static unsigned below(unsigned limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % limit;
}

static uint64_t hash(const char *text, size_t size) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < size; i++) sum = (sum ^ (unsigned char)text[i]) * 1099511628211u;
  return sum;
}

static char bytes[LARGEST];

/* Bytes that differ from sequence to sequence, with ends of lines. */
static size_t some(size_t most) {
  size_t size = 1 + below((unsigned)most);
  for (size_t i = 0; i < size; i++) bytes[i] = below(20) ? (char)(33 + below(90)) : '\n';
  return size;
}

static const char *path;
static FILE *f;
static bool reads, writes;

static void begin(unsigned seed) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0);
  if (below(8)) {
    size_t size = some(LARGEST);
    CHECK(write(fd, bytes, size) == (ssize_t)size);
  }
  static const char *const modes[] = {"r+", "r+", "r+", "w+", "w+", "a+", "a+", "r", "w", "a"};
  const char *mode = modes[below(10)];
  reads = mode[0] == 'r' || mode[1] == '+';
  writes = mode[0] != 'r' || mode[1] == '+';
  printf("%u: %s", seed, mode);
  if (below(4)) {
    f = fopen(path, mode);
  } else {
    /* A descriptor that appends already, or not yet, and that is not at the beginning. */
    int append = mode[0] == 'a' && below(2) ? O_APPEND : 0;
    int access = below(4) ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    int own = open(path, access | append);
    off_t at = below(LARGEST);
    CHECK(own >= 0 && lseek(own, at, SEEK_SET) == at);
    f = fdopen(own, mode);
    printf(" of a descriptor %d %d at %ld", access, append, (long)at);
    if (!f) close(own);
  }
  CHECK(close(fd) == 0);
  if (!f) {
    printf(" errno %d\n", errno);
    return;
  }
  static char own[8192];
  static const int kinds[] = {_IOFBF, _IOLBF, _IONBF};
  int kind = kinds[below(3)];
  size_t size = below(2) ? 1 + below(64) : 1 + below(sizeof own);
  if (below(4)) printf(" buffer %d %zu %d", kind, size, setvbuf(f, own, kind, size));
  printf(" tell %ld\n", ftell(f));
}

/* What the sequence has done last, and may therefore not do next. */
static enum { NEITHER, HAS_READ, HAS_WRITTEN } last;
/* It has been positioned since the last write. */
static bool is_positioned;
/* There is a byte to put back; elsewhere glibc's `ungetc` can destroy its own stream. */
static bool may_put_back;
/* One was put back since the last positioning: glibc 2.36 may then flush to the wrong place, or end in `abort`. */
static bool is_put_back;

static long reading(void) {
  if (!reads) return fgetc(f);
  long done = 0;
  size_t size;
  char *line = NULL, word[64];
  bytes[0] = 0;
  switch (below(is_put_back ? 5 : 6)) {
  case 0: return fgetc(f);
  case 1:
  case 2:
    /* `fread` of libc's own streams drops what is left to write, if it may not read here. */
    if (last == HAS_WRITTEN) return fgetc(f);
    size = below(3) ? 1 + below(100) : below(LARGEST);
    done = (long)fread(bytes, 1, size, f);
    break;
  case 3: return fgets(bytes, 2 + (int)below(200), f) ? (long)(hash(bytes, strlen(bytes)) >> 1) : -1;
  case 4:
    size = 0;
    done = getline(&line, &size, f);
    printf(" line %lx", done > 0 ? (long)hash(line, (size_t)done) : 0);
    free(line);
    return done;
  case 5:
    done = fscanf(f, "%50s", word);
    if (done == 1) printf(" word %s", word);
    return done;
  }
  printf(" bytes %lx", (long)hash(bytes, (size_t)done));
  return done;
}

static long writing(void) {
  if (!writes) return fputc('!', f);
  switch (below(5)) {
  case 0: return fputc('A' + (int)below(26), f);
  case 1: return fprintf(f, "%u;%s", below(100000), below(2) ? "\n" : "");
  case 2: return fputs("a line\n", f) < 0 ? -1 : 1;
  default: return (long)fwrite(bytes, 1, some(below(3) ? 100 : LARGEST), f);
  }
}

/* `saved`: a position that `fgetpos` has given. */
static long positioning(fpos_t *saved, bool *has) {
  switch (below(9)) {
  case 0: return fseek(f, 0, SEEK_CUR);
  case 1: return fseek(f, (long)below(400) - 200, SEEK_CUR);
  case 2: return fseeko(f, (off_t)below(2000) - 1000, SEEK_CUR);
  case 3: return fseek(f, below(LARGEST), SEEK_SET);
  case 4: return fseeko(f, below(300), SEEK_SET);
  case 5: return fseek(f, -(long)below(600), SEEK_END);
  case 6: return fseek(f, (long)below(100), SEEK_END);
  case 7:
    if (*has) return fsetpos(f, saved);
    *has = true;
    return fgetpos(f, saved) == 0 ? fsetpos(f, saved) : -2;
  default: rewind(f); return 0;
  }
}

static void sequence(unsigned seed, bool loose) {
  state = seed * 0x9E3779B97F4A7C15u;
  begin(seed);
  if (!f) return;
  fpos_t saved;
  bool has = false;
  last = NEITHER;
  is_positioned = true;
  may_put_back = is_put_back = false;
  for (int i = 0; i < OPERATIONS; i++) {
    unsigned what = below(21);
    bool could_put_back = may_put_back;
    may_put_back = false;
    errno = 0;
    printf("%u.%d:", seed, i);
    long done = 0;
    if (what < 7 && (loose || last != HAS_WRITTEN)) {
      done = reading();
      may_put_back = done > 0 && !feof(f) && is_positioned;
      /* At the end of the file, a write may follow. */
      last = feof(f) && !is_put_back ? NEITHER : HAS_READ;
      printf(" read %ld", done);
    } else if (what < 13 && !is_put_back && (loose || last != HAS_READ)) {
      done = writing();
      last = HAS_WRITTEN;
      is_positioned = false;
      printf(" wrote %ld", done);
    } else if (what < 16) {
      done = positioning(&saved, &has);
      if (done == 0) {
        last = NEITHER;
        is_positioned = true;
        is_put_back = false;
      }
      printf(" positioned %ld", done);
    } else if (what == 16 && could_put_back) {
      done = ungetc('a' + (int)below(26), f);
      is_put_back = true;
      printf(" put back %ld", done);
    } else if (what == 17 && !is_put_back) {
      /* The descriptor is there, too, then. */
      done = fflush(f);
      last = NEITHER;
      printf(" flushed %ld %ld", done, (long)lseek(fileno(f), 0, SEEK_CUR));
    } else if (what == 18) {
      done = fgetpos(f, &saved);
      has = done == 0;
      printf(" position %ld", done);
    } else if (what == 19) {
      clearerr(f);
      printf(" cleared");
    } else if (what == 20 && below(4) == 0 && writes && !is_put_back) {
      /* By the descriptor, and with the stream's position anew. */
      CHECK(fflush(f) == 0);
      off_t size = below(LARGEST);
      done = ftruncate(fileno(f), size);
      printf(" truncated %ld %ld %d", (long)size, done, fseek(f, below(200), SEEK_SET));
      last = NEITHER;
    }
    int error = done < 0 ? errno : 0;
    printf(" errno %d end %d error %d tell %ld\n", error, feof(f), ferror(f), below(3) ? ftell(f) : 0);
  }
  printf("%u: closed %d", seed, fclose(f));
  static char all[1 << 20];
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  ssize_t size = read(fd, all, sizeof all);
  CHECK(size >= 0 && size < (ssize_t)sizeof all && close(fd) == 0);
  printf(" %zd bytes %lx\n", size, (long)hash(all, (size_t)size));
}

int main(int count, char **arguments) {
  CHECK(count >= 4);
  path = arguments[1];
  unsigned from = (unsigned)atoi(arguments[2]), to = (unsigned)atoi(arguments[3]);
  for (unsigned seed = from; seed <= to; seed++) sequence(seed, count > 4);
  return 0;
}
