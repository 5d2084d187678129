/* How much stack calls on an atomic file take. Usage: stack FILE [thread|kill|BYTES]. Prints one line for each call, with
 * the most that it has taken. With "thread": the calls are made on
 * the smallest stack; with a number: by a signal handler with a stack of so many bytes. "kill" leaves a journal. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static const char *path;
static int fd;
static char bytes[8192];

static void open_it(void) { CHECK((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0); }
static void open_empty(void) { CHECK((fd = open(path, O_RDWR | O_TRUNC)) >= 0); }
static void open_again(void) {
  int other = open(path, O_RDONLY);
  CHECK(other >= 0 && close(other) == 0);
}
static void write_few(void) { CHECK(pwrite(fd, bytes, 100, 10) == 100); }
static void write_block(void) { CHECK(pwrite(fd, bytes, 4096, 100) == 4096); }
static void read_it(void) { CHECK(pread(fd, bytes + 4096, 4096, 10) > 0); }
static void sync_it(void) { CHECK(fsync(fd) == 0); }
static void cut_it(void) { CHECK(ftruncate(fd, 1000) == 0); }
static void stat_it(void) {
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && stat(path, &st) == 0);
}
static void close_it(void) { CHECK(close(fd) == 0); }

#define ROOM ((size_t)256 << 10)
static char *stack;

/* The part of the stack below this frame is painted; what is left of the paint was not used. */
static __attribute__((noinline)) void measure(const char *name, void (*call)(void)) {
  char *here = __builtin_frame_address(0);
  for (volatile char *at = stack; at < here - 512; at++) *at = 0x5A;
  for (char *at = bytes; at < bytes + 4096; at++) (*at)++;
  call();
  char *lowest = stack;
  while (*lowest == 0x5A) lowest++;
  printf("%s %zu\n", name, (size_t)(here - lowest));
}

static void *all(void *unused) {
  (void)unused;
  measure("open", open_it);
  measure("first-write", write_few);
  measure("first-sync", sync_it);
  measure("overwrite", write_few); /* begins a session where the mark has no room for it */
  measure("sync", sync_it);
  measure("session", write_block);
  sync_it();
  for (int i = 0; i < 50; i++) {
    write_block();
    sync_it();
  }
  measure("write", write_few);
  measure("sync", sync_it);
  measure("write-block", write_block);
  measure("read", read_it);
  measure("stat", stat_it);
  measure("cut", cut_it);
  measure("open-again", open_again);
  measure("close", close_it);
  measure("open-empty", open_empty);
  measure("write-block", write_block);
  measure("close", close_it);
  return NULL;
}

/* All that a thread does with a file, on the smallest stack that libc grants. */
static void *few(void *unused) {
  (void)unused;
  open_it();
  for (int i = 0; i < 3; i++) {
    write_few();
    sync_it();
    write_block();
    read_it();
    stat_it();
  }
  close_it();
  open_empty();
  write_block();
  close_it();
  return NULL;
}

static void run(void *(*what)(void *), size_t room) {
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK((stack = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, room) == 0);
  CHECK(pthread_create(&thread, &attributes, what, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static volatile sig_atomic_t handled;
static void handler(int signal) {
  (void)signal;
  write_few();
  handled = 1;
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  path = argv[1];
  if (argc == 2) {
    run(all, ROOM);
  } else if (strcmp(argv[2], "thread") == 0) {
    run(few, 16384);
  } else {
    open_it();
    for (int i = 0; i < 3; i++) {
      write_block();
      sync_it();
    }
    write_few();
    if (strcmp(argv[2], "kill") == 0) raise(SIGKILL);
    size_t room = strtoul(argv[2], NULL, 10), page = 4096;
    char *memory = mmap(NULL, 2 * page + room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + page, room, PROT_READ | PROT_WRITE) == 0);
    stack_t other = {.ss_sp = memory + page, .ss_size = room};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&other, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0 && handled);
    close_it();
  }
  return 0;
}
